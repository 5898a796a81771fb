"""English money, percentages, temperatures and units in words."""

from __future__ import annotations

import re
from typing import NamedTuple

from engine.frontend.number_words import LONGEST_CARDINAL, cardinal, digits, number

NUMBER = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)"
START = r"(?<![\w.,/$€£¥])"
DASH = r"\s?[-–—~]\s?"


class Currency(NamedTuple):
    """Names of one and of many, of the currency and of its hundredth."""

    one: str
    many: str
    cent: str = ""
    cents: str = ""


_DOLLAR = Currency("dollar", "dollars", "cent", "cents")
_EURO = Currency("euro", "euros", "cent", "cents")
_POUND = Currency("pound", "pounds", "penny", "pence")
_YEN, _YUAN = Currency("yen", "yen"), Currency("yuan", "yuan")
_SIGNS = {
    "US$": Currency("U.S dollar", "U.S dollars", "cent", "cents"),
    "A$": Currency("Australian dollar", "Australian dollars", "cent", "cents"),
    "C$": Currency("Canadian dollar", "Canadian dollars", "cent", "cents"),
    "CA$": Currency("Canadian dollar", "Canadian dollars", "cent", "cents"),
    "HK$": Currency("Hong Kong dollar", "Hong Kong dollars", "cent", "cents"),
    "$": _DOLLAR, "€": _EURO, "£": _POUND, "¥": _YEN, "￥": _YUAN,
    "₹": Currency("rupee", "rupees"), "₩": Currency("won", "won"),
    "₽": Currency("ruble", "rubles"), "₿": Currency("bitcoin", "bitcoins"),
}  # fmt: skip
_CODES = {
    "USD": _DOLLAR, "EUR": _EURO, "GBP": _POUND, "JPY": _YEN, "CNY": _YUAN, "RMB": _YUAN,
    "CHF": Currency("Swiss franc", "Swiss francs"), "BTC": Currency("bitcoin", "bitcoins"),
}  # fmt: skip
_MAGNITUDES = {
    "k": "thousand", "m": "million", "mn": "million", "b": "billion", "bn": "billion",
    "t": "trillion", "tn": "trillion",
}  # fmt: skip
_SAME = ("hundred", "thousand", "million", "billion", "trillion")
_UNITS = {
    "km": "kilometer", "m": "meter", "cm": "centimeter", "mm": "millimeter", "nm": "nanometer",
    "µm": "micrometer", "μm": "micrometer", "kg": "kilogram", "g": "gram", "mg": "milligram",
    "µg": "microgram", "lb": "pound", "lbs": "pounds/pounds", "oz": "ounce", "ft": "foot/feet",
    "in": "inch/inches", "yd": "yard", "mi": "mile", "L": "liter", "l": "liter", "mL": "milliliter",
    "ml": "milliliter", "cc": "cubic centimeter", "ha": "hectare", "km²": "square kilometer",
    "m²": "square meter", "cm²": "square centimeter", "km2": "square kilometer",
    "m2": "square meter", "㎡": "square meter", "m³": "cubic meter", "m3": "cubic meter",
    "cm³": "cubic centimeter", "sq ft": "square foot/square feet",
    "sqft": "square foot/square feet",
    "sq mi": "square mile", "mph": "mile per hour/miles per hour",
    "km/h": "kilometer per hour/kilometers per hour",
    "kph": "kilometer per hour/kilometers per hour",
    "kmh": "kilometer per hour/kilometers per hour",
    "m/s": "meter per second/meters per second",
    "Hz": "hertz/hertz", "kHz": "kilohertz/kilohertz", "MHz": "megahertz/megahertz",
    "GHz": "gigahertz/gigahertz", "KB": "kilobyte", "kB": "kilobyte", "MB": "megabyte",
    "GB": "gigabyte", "TB": "terabyte", "PB": "petabyte", "KiB": "kibibyte", "MiB": "mebibyte",
    "GiB": "gibibyte", "Kbps": "kilobit per second/kilobits per second",
    "kbps": "kilobit per second/kilobits per second",
    "Mbps": "megabit per second/megabits per second",
    "Gbps": "gigabit per second/gigabits per second",
    "MB/s": "megabyte per second/megabytes per second",
    "GB/s": "gigabyte per second/gigabytes per second",
    "h": "hour", "hr": "hour", "hrs": "hour", "min": "minute", "mins": "minute", "s": "second",
    "sec": "second", "secs": "second", "ms": "millisecond", "µs": "microsecond", "ns": "nanosecond",
    "V": "volt", "kV": "kilovolt", "W": "watt", "kW": "kilowatt", "MW": "megawatt",
    "GW": "gigawatt", "kWh": "kilowatt hour", "Wh": "watt hour", "mAh": "milliamp hour",
    "mA": "milliamp", "A": "amp", "J": "joule", "kJ": "kilojoule", "kcal": "kilocalorie",
    "cal": "calorie", "Pa": "pascal", "kPa": "kilopascal", "hPa": "hectopascal",
    "psi": "P.S.I/P.S.I",
    "dB": "decibel", "rpm": "R.P.M/R.P.M", "fps": "frame per second/frames per second",
    "px": "pixel", "dpi": "D.P.I/D.P.I", "MP": "megapixel", "°C": "degree Celsius/degrees Celsius",
    "℃": "degree Celsius/degrees Celsius", "°F": "degree Fahrenheit/degrees Fahrenheit",
    "℉": "degree Fahrenheit/degrees Fahrenheit", "°": "degree", "%": "percent/percent",
    "‰": "per mille/per mille", "bps": "basis point/basis points",
    "mg/dL": "milligram per deciliter/milligrams per deciliter",
}  # fmt: skip
_ATTACHED_ONLY = frozenset(("s", "l", "A", "J", "in", "cal"))
"""Units that are words or names when they stand apart: `5 in a row`, `5 A grades`."""


def _any(words: object) -> str:
    return "|".join(re.escape(w) for w in sorted(map(str, words), key=len, reverse=True))  # type: ignore[call-overload]


_MAGNITUDE = rf"(?:\s?(?P<{{0}}>{'|'.join(_SAME)})\b|(?P<{{1}}>(?i:{_any(_MAGNITUDES)}))(?![\w/]))?"
_MONEY = re.compile(
    rf"(?P<minus>(?<![\w)])[-−]\s?)?(?P<sign>(?<![\w$])(?:{_any(_SIGNS)})|\b(?:{_any(_CODES)})\s?)\s?"
    rf"(?P<n>{NUMBER}){_MAGNITUDE.format('w', 'k')}"
    rf"(?:{DASH}(?:{_any(_SIGNS)})?(?P<n2>{NUMBER}){_MAGNITUDE.format('w2', 'k2')})?"
    rf"(?:/(?P<per>hour|hr|day|week|month|mo|year|yr|person|night|unit|GB|kg|lb)\b)?"
)
_MONEY_LAST = re.compile(
    rf"{START}(?P<n>{NUMBER}){_MAGNITUDE.format('w', 'k')}\s?(?P<sign>(?:{_any(_CODES)})\b|[€£¥])"
)
_CENTS = re.compile(rf"{START}(?P<n>{NUMBER})\s?¢")
_PER = {
    "hr": "hour",
    "mo": "month",
    "yr": "year",
    "GB": "gigabyte",
    "kg": "kilogram",
    "lb": "pound",
}
_FEET = re.compile(r"(?<![\w.,])(?P<ft>\d)'\s?(?P<in>\d{1,2})(?:\"|'')?(?!\w)")
_INCHES = re.compile(rf"{START}(?P<n>{NUMBER})(?:-inch\b|\"(?=\s+[a-z]))")
_MEASURE = re.compile(
    rf"{START}(?P<minus>(?<![\d)])[-−])?(?P<n>{NUMBER})(?:\s?(?P<unit1>{_any(_UNITS)})?{DASH}"
    rf"(?P<n2>{NUMBER}))?(?P<gap>[ -]?)(?P<unit>{_any(_UNITS)})(?![\w²³/%°])"
)


def read_measures(text: str) -> str:
    """Text with every amount of money and every number with a unit in words."""
    text = _MONEY.sub(_money_range, text)
    text = _MONEY_LAST.sub(lambda m: _money(m["n"], m["sign"], m["w"] or m["k"]), text)
    text = _CENTS.sub(lambda m: f"{number(m['n'])} {'cent' if m['n'] == '1' else 'cents'}", text)
    text = _FEET.sub(lambda m: f"{cardinal(int(m['ft']))} foot {cardinal(int(m['in']))}", text)
    text = _INCHES.sub(lambda m: f"{amount(m['n'])} inch", text)
    return _MEASURE.sub(_measure, text)


def amount(text: str) -> str:
    """A quantity: never read like a year."""
    if text.isdigit() and len(text) <= LONGEST_CARDINAL and (text == "0" or text[0] != "0"):
        return cardinal(int(text))
    return number(text)


def _money_range(m: re.Match[str]) -> str:
    sign = m["sign"].strip()
    scale, scale2 = m["w"] or m["k"], m["w2"] or m["k2"]
    if m["n2"]:
        low = amount(m["n"]) + (f" {_magnitude(scale)}" if scale and scale != scale2 else "")
        said = f"{low} to {_money(m['n2'], sign, scale2)}"
    else:
        said = _money(m["n"], sign, scale)
    if m["per"]:
        said += f" per {_PER.get(m['per'], m['per'])}"
    return f"minus {said}" if m["minus"] else said


def _magnitude(text: str) -> str:
    return text if text in _SAME else _MAGNITUDES[text.lower()]


def _money(text: str, sign: str, magnitude: str | None) -> str:
    currency = _SIGNS.get(sign) or _CODES[sign]
    whole, _, part = text.replace(",", "").partition(".")
    if magnitude:
        return f"{amount(text)} {_magnitude(magnitude)} {currency.many}"
    if len(part) == 2 and currency.cent:
        units, small = int(whole or 0), int(part)
        said = [f"{amount(whole)} {_plural(units, currency.one, currency.many)}"] if units else []
        if small or not units:
            said.append(f"{cardinal(small)} {_plural(small, currency.cent, currency.cents)}")
        return " and ".join(said)
    return f"{amount(text)} {currency.one if text == '1' else currency.many}"


def _plural(count: int, one: str, many: str) -> str:
    return one if count == 1 else many


def _measure(m: re.Match[str]) -> str:
    unit, gap = m["unit"], m["gap"]
    if unit in _ATTACHED_ONLY and gap:
        return m[0]
    if gap == "-" and unit in ("%", "°"):
        return m[0]
    low, high = m["n"], m["n2"]
    said = amount(low) + (f" to {amount(high)}" if high else "")
    one, _, many = _UNITS[unit].partition("/")
    single = (high or low) in ("1", "1.0") or gap == "-"
    name = one if single else many or f"{one}s"
    return f"{'minus ' if m['minus'] else ''}{said} {name}"


def spell_digits(text: str) -> str:
    """Digits one by one, whatever separates them; groups become short pauses."""
    return ", ".join(digits(group) for group in re.findall(r"\d+", text))
