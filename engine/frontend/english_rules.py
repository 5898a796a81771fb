"""English as it is written to English as it is said: everything with digits or signs in it.

Rules run in order, each on what the ones before have left. Titles, abbreviations and Roman numerals
are left to hibari, whose reading the teacher of the English voice had.
"""

from __future__ import annotations

import re

from hibari.g2p.normalize import normalize as read_abbreviations

from engine.frontend.addresses import Style, read_addresses, spelled
from engine.frontend.english_measures import NUMBER, START, amount, read_measures, spell_digits
from engine.frontend.english_time import date, read_times
from engine.frontend.number_words import cardinal, digits, number, ordinal, year

_ADDRESS_STYLE = Style(
    {
        ".": "dot", "@": "at", "/": "slash", "-": "dash", "_": "underscore", "+": "plus",
        "~": "tilde", ":": "colon", "&": "and", "=": "equals", "%": "percent",
    },
    digits,
    " ",
)  # fmt: skip

_VERSION = re.compile(r"(?<![A-Za-z0-9.])[vV](?:er(?:sion)?\.? ?)?(?P<v>\d+(?:\.\d+)*)(?![\w.]*\d)")
_DOTTED = re.compile(r"(?<![\w.])\d+(?:\.\d+){2,}(?![\w])")
_PHONE = re.compile(
    r"(?<![\w.,$€£¥/-])(?:\+\d{1,3}(?:[ .-]?\(?\d{1,4}\)?){2,5}"
    r"|(?:1[ .-])?\(\d{3}\)[ .-]?\d{3}[ .-]\d{4}|(?:1[.-])?\d{3}[.-]\d{3}[.-]\d{4}|\d{3}-\d{4})"
    r"(?![\w-]|\.\d)"
)
_CARD = re.compile(r"(?<![\w.,-])\d{4}(?:[ -]\d{4}){2,4}(?![\w-])")
_LONG = re.compile(r"(?<![\w.,])\d{8,}(?![\w]|[.,]\d)")
_TIMES = re.compile(rf"{START}(?P<a>{NUMBER})\s?[x×]\s?(?P<b>{NUMBER})(?!\w)")
_MULTIPLE = re.compile(rf"{START}(?P<a>{NUMBER})[x×](?!\w)")
_MIXED = re.compile(
    r"(?<![\w./,])(?:(?P<w>\d{1,3})[ -])?(?P<a>\d{1,3})/(?P<b>\d{1,3})(?![\w/]|\.\d)"
)
_ORDINAL = re.compile(r"(?<![\w.])(?P<n>\d{1,3}(?:,\d{3})+|\d{1,12})(?:st|nd|rd|th)\b", re.I)
_POWER = re.compile(r"(?<=[\w)])(?P<p>[²³]|\^\s?(?P<e>-?\d+|[a-z]\b))")
_COMPARED = re.compile(
    r"\s?(?P<o>[=+×÷*<>≤≥≈≠±√−]|(?<=\d)\s?-\s?(?=\d[\d.]*\s?=)|(?<= )-(?= ))\s?(?=[\w(.-])"
)
_OPERATORS = {
    "=": "equals", "+": "plus", "×": "times", "÷": "divided by", "*": "times", "<": "is less than",
    ">": "is greater than", "≤": "is at most", "≥": "is at least", "≈": "is about",
    "≠": "is not equal to", "±": "plus or minus", "√": "the square root of", "-": "minus",
    "−": "minus",
}  # fmt: skip
_MATH = re.compile(r"\d\s?[=+×÷*<>≤≥≈≠±√]|[=+×÷<>≤≥≈≠±√]\s?[\d(]|\b[a-z]\s?[=+²³^]")
_RANGE = re.compile(rf"{START}(?P<a>{NUMBER})\s?[-–—~]\s?(?P<b>{NUMBER})(?![\w-])")
_SIGNED = re.compile(rf"(?<![\w)\]}}.])(?P<s>[-+])(?={NUMBER})")
_HASH = re.compile(r"#(?=\d)")
_HASHTAG = re.compile(r"(?<![\w&])#(?=[A-Za-z])")
_NAMED = re.compile(r"(?P<l>[A-Za-z]+)-?(?P<d>\d+)(?![\d.,]*\d)|(?P<l2>[A-Za-z]+)-(?=\d)")
_SCALED = re.compile(rf"{START}(?P<n>{NUMBER})(?P<s>[MBT]|bn|mn)\b(?!-)")
_SCALES = {"M": "million", "mn": "million", "B": "billion", "bn": "billion", "T": "trillion"}
_ATTACHED = re.compile(rf"(?P<d>{NUMBER})(?P<l>[A-Za-z]+)")
_PLACE = re.compile(
    r"\b(?P<w>(?i:flight|route|highway|interstate|bus|gate|apartment|suite|channel|extension|boeing"
    r"|airbus|rtx|gtx|error|code) )(?P<d>\d{3,4})\b(?![.,:]\d)"
)
_AMPERSAND = re.compile(r"(?P<a>[A-Z]{0,3})&(?P<b>[A-Z]{0,3}\b)|\s*&\s*")
_ABOUT = re.compile(r"[~≈]\s?(?=\d)")
_EMOTICON = re.compile(r"(?<!\S)(?:[:;][-'^]?[)(DPpOo/|\\*]+|<3|\^_\^|-_-)(?=[\s.,!?]|$)")
_HYPHEN = re.compile(r"(?<=\d)-(?=[A-Za-z])")
_SLASH = re.compile(r"(?<=[A-Za-z])/(?=\w)")
_SHARP = re.compile(r"\b(?P<l>[CFJ])(?P<s>#|\+\+)(?!\w)")
_NUMBER = re.compile(NUMBER)
_PAIRS = re.compile(r"(?<![\w.,])(?!\d\d00)[2-9]\d{3}(?=\s?[.,;:!?)](?!\d)|$)")
_LEFT_OVER = re.compile(r"[\[\]{}<>|\\^_*`~=•·]+")
_SPACED_MARK = re.compile(r"\s+([,.;:!?…])")
_DOUBLE_DASH = re.compile(r"\s*(?:--+|(?<=\s)[-–](?=\s)|—)\s*")
_SPACES = re.compile(r"\s+")


def english_words(text: str) -> str:
    """English text as it is said, from one line of plain characters (see `characters`)."""
    text = _EMOTICON.sub(" ", text)
    text = read_addresses(text, _ADDRESS_STYLE)
    text = _SHARP.sub(lambda m: f"{m['l']} {'sharp' if m['s'] == '#' else 'plus plus'}", text)
    text = _DOTTED.sub(_dotted, text)
    text = _VERSION.sub(lambda m: f"version {_points(m['v'])}", text)
    text = _PHONE.sub(_phone, text)
    text = _CARD.sub(lambda m: spell_digits(m[0]), text)
    text = read_times(text)
    text = read_measures(text)
    text = _LONG.sub(_long, text)
    text = _MIXED.sub(_fraction, text)
    text = _TIMES.sub(_product if "=" in text else _by, text)
    text = _SCALED.sub(lambda m: f"{amount(m['n'])} {_SCALES[m['s']]}", text)
    text = _PLACE.sub(lambda m: m["w"] + _name_digits(m["d"]), text)
    text = _ABOUT.sub("about ", text)
    text = _ORDINAL.sub(lambda m: ordinal(int(m["n"].replace(",", ""))), text)
    text = _arithmetic(text)
    text = _RANGE.sub(_range, text)
    text = _SIGNED.sub(lambda m: "minus " if m["s"] == "-" else "plus ", text)
    text = _HASH.sub("number ", text)
    text = _HASHTAG.sub("hashtag ", text)
    text = _MULTIPLE.sub(lambda m: f"{amount(m['a'])} times", text)
    text = _HYPHEN.sub(" ", text)
    text = _ATTACHED.sub(_digits_then_letters, text)
    text = _NAMED.sub(_letters_then_digits, text)
    text = _SLASH.sub(" ", text)
    text = _AMPERSAND.sub(_ampersand, text)
    text = text.replace("%", " percent ").replace("℃", " degrees Celsius ")
    text = _DOUBLE_DASH.sub("—", text)
    text = read_abbreviations(text)
    text = _PAIRS.sub(lambda m: year(int(m[0])), text)
    text = _NUMBER.sub(lambda m: f" {number(m[0])} ", text)
    text = _LEFT_OVER.sub(" ", text)
    return _SPACED_MARK.sub(r"\1", _SPACES.sub(" ", text)).strip()


def _points(text: str) -> str:
    parts = text.split(".")
    return " point ".join(digits(p) if p[0] == "0" else number(p) for p in parts)


def _dotted(m: re.Match[str]) -> str:
    parts = m[0].split(".")
    if len(parts) == 3 and len(parts[2]) == 4:
        return date(parts[2], parts[1], parts[0]) or _points(m[0])
    if len(parts) == 4 and all(int(p) < 256 for p in parts):
        return " dot ".join(map(digits, parts))
    return _points(m[0])


def _phone(m: re.Match[str]) -> str:
    return ("plus " if m[0].startswith("+") else "") + spell_digits(m[0])


def _long(m: re.Match[str]) -> str:
    text = m[0]
    if text.endswith("000") and text[0] != "0":
        return number(text)
    if re.fullmatch(r"1[3-9]\d{9}", text):
        return ", ".join(map(digits, (text[:3], text[3:7], text[7:])))
    size = 4 if len(text) % 4 == 0 else 3
    return ", ".join(digits(text[i : i + size]) for i in range(0, len(text), size))


def _fraction(m: re.Match[str]) -> str:
    whole, top, bottom = m["w"], int(m["a"]), int(m["b"])
    if not whole and (top, bottom) == (24, 7):
        return "twenty four seven"
    simple = 0 < top < bottom and (bottom <= 10 or bottom in (12, 16, 20, 32, 50, 64, 100))
    if not whole and 0 < top <= 12 and bottom in (*range(11, 12), *range(13, 16), *range(17, 20)):
        simple = False
    if not simple:
        day = None if whole else date(None, m["a"], m["b"])
        rest = day if day and bottom > 10 else f"{cardinal(top)} out of {cardinal(bottom)}"
        return f"{whole} {rest}" if whole else rest
    if bottom == 2:
        unit = "half"
    elif bottom == 4:
        unit = "quarter" if top == 1 else "quarters"
    else:
        unit = ordinal(bottom) + ("" if top == 1 else "s")
    if whole:
        return f"{cardinal(int(whole))} and {'a' if top == 1 else cardinal(top)} {unit}"
    return f"{cardinal(top)} {unit}"


def _arithmetic(text: str) -> str:
    """Signs between numbers or one-letter names become words; elsewhere they stay."""
    if not _MATH.search(text):
        return text
    text = _POWER.sub(_power, text)
    return _COMPARED.sub(lambda m: f" {_OPERATORS[m['o'].strip()]} ", text)


def _power(m: re.Match[str]) -> str:
    exponent = {"²": "2", "³": "3"}.get(m["p"]) or m["e"]
    named = {"2": " squared", "3": " cubed"}.get(exponent)
    return named or f" to the power of {exponent} "


def _range(m: re.Match[str]) -> str:
    return f"{number(m['a'])} to {number(m['b'])}"


def _by(m: re.Match[str]) -> str:
    return f"{number(m['a'])} by {number(m['b'])}"


def _product(m: re.Match[str]) -> str:
    return f"{number(m['a'])} times {number(m['b'])}"


def _ampersand(m: re.Match[str]) -> str:
    if not m["a"] or not m["b"]:
        return f"{m['a'] or ''} and {m['b'] or ''}"
    first, last = (
        letters if len(letters) == 1 else spelled(letters) for letters in (m["a"], m["b"])
    )
    return f"{first} and {last}"


def _digits_then_letters(m: re.Match[str]) -> str:
    figures, letters = m["d"], m["l"]
    said = _name_digits(figures) if figures.isdigit() else number(figures)
    return f" {said} {letters.upper() if len(letters) == 1 else letters} "


def _letters_then_digits(m: re.Match[str]) -> str:
    if m["l2"]:
        return f"{m['l2']} "
    return f"{m['l']} {_name_digits(m['d'])}"


def _name_digits(text: str) -> str:
    """Digits of a name: `747` -> seven forty seven, `19` -> nineteen, `007` one by one."""
    if (text[0] == "0" and len(text) > 1) or len(text) > 4:
        return digits(text)
    if len(text) == 4:
        return year(int(text))
    if len(text) == 3 and not text.endswith("00"):
        rest = f"oh {digits(text[2])}" if text[1] == "0" else cardinal(int(text[1:]))
        return f"{digits(text[0])} {rest}"
    return cardinal(int(text))
