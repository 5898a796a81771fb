"""English dates and times in words."""

from __future__ import annotations

import re

from engine.frontend.number_words import cardinal, joined, ordinal, year

_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
_MONTH = (
    r"(?P<month>Jan(?:uary|\.)?|Feb(?:ruary|\.)?|Mar(?:ch|\.)?|Apr(?:il|\.)?|May|June?\.?|July?\.?|"
    r"Aug(?:ust|\.)?|Sept?(?:ember|\.)?|Oct(?:ober|\.)?|Nov(?:ember|\.)?|Dec(?:ember|\.)?)"
)
_YEAR = r"(?:,? (?P<year>[12]\d{3})\b)?"
_DASH = r"\s?[-–—]\s?"
_START = r"(?<![\w.,/:$€£¥#-])"

_ISO = re.compile(
    r"\b(?P<y>\d{4})(?P<s>[-/.])(?P<m>\d{1,2})(?P=s)(?P<d>\d{1,2})(?P<t>[T ](?=\d\d:)|\b)"
)
_SLASHED = re.compile(_START + r"(?P<a>\d{1,2})/(?P<b>\d{1,2})/(?P<y>\d{4}|\d{2})(?![\w/])")
_DOTTED = re.compile(_START + r"(?P<d>\d{1,2})\.(?P<m>\d{1,2})\.(?P<y>\d{4})(?![\w])(?!\.\d)")
_DAYS = re.compile(
    rf"\b{_MONTH} (?P<d>\d{{1,2}})(?:st|nd|rd|th)?(?:{_DASH}(?P<e>\d{{1,2}})(?:st|nd|rd|th)?)?"
    rf"\b(?![\d:%])(?!,\d){_YEAR}"
)
_DAY_FIRST = re.compile(
    rf"(?P<the>\b[Tt]he )?{_START}(?P<d>\d{{1,2}})(?:st|nd|rd|th)? (?:of )?{_MONTH}(?![a-z]){_YEAR}"
)
_CLOCK = r"(?P<h{0}>\d{{1,2}})(?::(?P<m{0}>\d{{2}}))?(?:\s?(?P<ap{0}>[AaPp])\.?[Mm]\b)?"
_SPAN = re.compile(_START + _CLOCK.format(1) + rf"\.?{_DASH}" + _CLOCK.format(2) + r"(?![\d:])")
_TIME = re.compile(
    _START + r"(?P<h>\d{1,2}):(?P<m>\d{2})(?::(?P<s>\d{2})(?:[.,]\d+)?)?"
    r"(?:\s?(?P<ap>[AaPp])\.?[Mm]\b)?(?P<utc>Z\b)?(?![\d:])"
)
_HOUR = re.compile(_START + r"(?P<h>\d{1,2})\s?(?P<ap>[AaPp])\.?[Mm]\b")
_DECADE = re.compile(r"(?<![\w.,])(?:(?P<c>1\d|20)|['’]?)(?P<t>[1-9]0|(?<=\d)00)(?:'|’)?s\b")
_SHORT_YEAR = re.compile(r"(?<![\w])['’](?P<y>\d{2})\b(?!['’]?s)")


def read_times(text: str) -> str:
    """Text with every date and time of day in words. Slashed dates are month first."""
    text = _ISO.sub(_iso, text)
    text = _SLASHED.sub(_slashed, text)
    text = _DOTTED.sub(lambda m: date(m["y"], m["m"], m["d"]) or m[0], text)
    text = _DAYS.sub(_days, text)
    text = _DAY_FIRST.sub(_day_first, text)
    text = _SPAN.sub(_span, text)
    text = _TIME.sub(_time, text)
    text = _HOUR.sub(lambda m: _clock(m["h"], None, None, m["ap"]) or m[0], text)
    text = _DECADE.sub(_decade, text)
    return _SHORT_YEAR.sub(lambda m: _two_digits(m["y"]), text)


def date(y: str | None, m: str, d: str) -> str | None:
    """`2024`, `3`, `5` -> March fifth, twenty twenty four; None when there is no such day."""
    if not (1 <= int(m) <= 12 and 1 <= int(d) <= 31):
        return None
    said = f"{_MONTHS[int(m) - 1]} {joined(ordinal(int(d)))}"
    return f"{said}, {year(int(y))}" if y else said


def _iso(m: re.Match[str]) -> str:
    said = date(m["y"], m["m"], m["d"])
    if said is None:
        return m[0]
    return f"{said}, " if m["t"] else said


def _slashed(m: re.Match[str]) -> str:
    y = m["y"] if len(m["y"]) == 4 else ("19" if int(m["y"]) > 50 else "20") + m["y"]
    return date(y, m["a"], m["b"]) or date(y, m["b"], m["a"]) or m[0]


def _month(name: str) -> str:
    return next(month for month in _MONTHS if month[:3] == name[:3])


def _days(m: re.Match[str]) -> str:
    if not 1 <= int(m["d"]) <= 31 or not 1 <= int(m["e"] or 1) <= 31:
        return m[0]
    said = f"{_month(m['month'])} {joined(ordinal(int(m['d'])))}"
    if m["e"]:
        said += f" to {joined(ordinal(int(m['e'])))}"
    return said + (f", {year(int(m['year']))}" if m["year"] else "")


def _day_first(m: re.Match[str]) -> str:
    if not 1 <= int(m["d"]) <= 31:
        return m[0]
    the = m["the"] or "the "
    said = f"{the}{joined(ordinal(int(m['d'])))} of {_month(m['month'])}"
    return said + (f", {year(int(m['year']))}" if m["year"] else "")


def _clock(hour: str, minute: str | None, second: str | None, half: str | None) -> str | None:
    h, m, s = int(hour), int(minute or 0), int(second or 0)
    if h > 24 or m > 59 or s > 59 or (half and h > 12):
        return None
    words = joined(cardinal(h))
    if m:
        words += f" oh {cardinal(m)}" if m < 10 else f" {joined(cardinal(m))}"
    elif minute is not None and not half and not second:
        words += " o'clock" if 1 <= h <= 12 else " hundred"
    if second:
        words += f" and {cardinal(s)} second{'' if s == 1 else 's'}"
    return f"{words} {half.upper()}.M" if half else words


def _time(m: re.Match[str]) -> str:
    said = _clock(m["h"], m["m"], m["s"], m["ap"])
    return m[0] if said is None else said + (" U.T.C" if m["utc"] else "")


def _span(m: re.Match[str]) -> str:
    if not (m["m1"] and m["m2"]) and not m["ap1"] and not m["ap2"]:
        return m[0]
    first = _clock(m["h1"], m["m1"], None, m["ap1"])
    last = _clock(m["h2"], m["m2"], None, m["ap2"])
    return f"{first} to {last}" if first and last else m[0]


def _decade(m: re.Match[str]) -> str:
    tens = {"00": "hundreds", "10": "tens"}.get(m["t"]) or cardinal(int(m["t"]))[:-1] + "ies"
    return f"{cardinal(int(m['c']))} {tens}" if m["c"] else tens


def _two_digits(text: str) -> str:
    low = int(text)
    return f"oh {cardinal(low)}" if low < 10 else cardinal(low)
