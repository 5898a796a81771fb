"""English number words, as American readers say them: without "and".

Hyphens are heard: hibari reads `forty-five` as one word with one main stress, as in a time of day
or a date, and `forty five` as two, as in a count.
"""

from __future__ import annotations

ONES = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
    "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_SCALES = ["", "thousand", "million", "billion", "trillion", "quadrillion"]
_ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
LONGEST_CARDINAL = 15
"""Digits; longer numbers are read digit by digit."""


def cardinal(number: int) -> str:
    """`1234` -> one thousand two hundred thirty four."""
    if number < 0:
        return f"minus {cardinal(-number)}"
    if number < 1000:
        return _below_thousand(number)
    words: list[str] = []
    scale = 0
    while number:
        number, group = divmod(number, 1000)
        if group:
            words.insert(0, f"{_below_thousand(group)} {_SCALES[scale]}".strip())
        scale += 1
    return " ".join(words)


def ordinal(number: int) -> str:
    """`21` -> twenty first."""
    head, _, last = cardinal(number).rpartition(" ")
    if last in _ORDINALS:
        last = _ORDINALS[last]
    else:
        last = f"{last[:-1]}ieth" if last.endswith("y") else f"{last}th"
    return f"{head} {last}".strip()


def joined(words: str) -> str:
    """`forty five` -> forty-five."""
    return words.replace(" ", "-")


def year(number: int) -> str:
    """`1905` -> nineteen oh five, `2007` -> two thousand seven, `1066` -> ten sixty six."""
    high, low = divmod(number, 100)
    if not 10 <= high < 100 or (high % 10 == 0 and low < 10):
        return cardinal(number)
    if low == 0:
        return f"{cardinal(high)} hundred"
    return f"{cardinal(high)} {f'oh {ONES[low]}' if low < 10 else cardinal(low)}"


def digits(text: str) -> str:
    """`007` -> zero zero seven."""
    return " ".join(ONES[int(c)] for c in text)


def number(text: str) -> str:
    """Words of a written number: digits with optional thousands commas and decimal part.

    Four digits from 1010 to 2099 without a comma are read like a year; leading zeros and numbers of
    more than 15 digits digit by digit.
    """
    whole, point, fraction = text.replace(",", "").partition(".")
    if (len(whole) > 1 and whole[0] == "0") or len(whole) > LONGEST_CARDINAL:
        words = digits(whole)
    elif not point and "," not in text and len(whole) == 4 and 1010 <= int(whole) < 2100:
        words = year(int(whole))
    else:
        words = cardinal(int(whole)) if whole else ""
    if fraction:
        words = f"{words} point {digits(fraction)}".strip()
    return words


def _below_thousand(number: int) -> str:
    words = []
    if number >= 100:
        words += [ONES[number // 100], "hundred"]
        number %= 100
    if number >= 20:
        words.append(_TENS[number // 10])
        number %= 10
        if number:
            words.append(ONES[number])
    elif number or not words:
        words.append(ONES[number])
    return " ".join(words)
