"""Character classes and the estimate of how long text takes to say.

The scanners use the standard `re` (three times as fast as `regex` on these classes); `regex` is
used where grapheme clusters are needed.
"""

from __future__ import annotations

import re

UNITS_PER_SECOND = 15.0
"""Length is counted in units of about 1/15 s: a Latin letter takes one, a Han character three."""

_WIDE_CLASS = (
    "0-9\uff10-\uff19"  # a digit is said as a word
    "\u3040-\u30fa\u30fc-\u30ff\u3105-\u312f\u3400-\u9fff\uac00-\ud7a3\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_WIDE = re.compile(f"[{_WIDE_CLASS}]+")
CJK_CLASS = (
    "\u3005-\u3007\u3040-\u30fa\u30fc-\u30ff\u3105-\u312f\u3400-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
CJK = re.compile(f"[{CJK_CLASS}]")
SPEAKABLE = re.compile(r"[^\W_]")
"""A letter or digit of any script: what makes text more than punctuation."""


def units(text: str) -> int:
    """Length of `text` in speech units (1/15 s): wide characters and digits count three."""
    if text.isascii():  # much the fastest way to count the digits
        return 3 * len(text) - 2 * len(text.encode().translate(None, b"0123456789"))
    return 3 * len(text) - 2 * len(_WIDE.sub("", text))


def expected_seconds(text: str, speed: float) -> float:
    """Roughly how long a text takes to say; digits are said as words."""
    return units(text) / UNITS_PER_SECOND / speed


def speakable(text: str) -> bool:
    """Whether `text` holds a letter or a digit."""
    return SPEAKABLE.search(text) is not None


# Marks that end a sentence or a clause. Those in the NARROW sets belong to Latin writing, where
# they count only with a space (or the end of a line) after them; all others stand for themselves.
NARROW_END = ".!?"
NARROW_CLAUSE = ",;:"
WIDE_END = (
    "。！？｡．"
    "\u061f\u06d4"  # Arabic question mark and full stop
    "\u0964\u0965"  # danda, double danda
    "\u0589\u1362\u1367\u1368\u104a\u104b\u17d4\u17d5\u1803\u1809"
    "\u203c\u203d\u2047\u2048\u2049"
)
WIDE_STRONG = "；：\u061b\u1364\u1365\u0f0d\u0f0e\u037e\u0387"
WIDE_COMMA = "，､\u060c\u055d\u1363\u1802\u1808～〜"
WIDE_ENUMERATION = "、"
STAND_ALONE = frozenset(WIDE_END) - {"．"}
"""Marks that end a sentence even between digits."""
DASHES = "\u2014\u2015\u2e3a\u2e3b"
SPACED_DASHES = "-\u2013"
ELLIPSES = "\u2026\u2025\u22ef"

BRACKETS = dict(zip("([{<（［｛【〔〖《〈｟⟨", ")]}>）］｝】〕〗》〉｠⟩", strict=True))
QUOTES = {
    **dict(zip("“‘「『〝｢\"'`$", "”’」』〞｣\"'`$", strict=True)),
    "„": "“”",  # German and Polish
    "‚": "‘’",
    "«": "»",
    "‹": "›",
    "»": "«",  # German and Danish books
    "›": "‹",
}
CLOSING = frozenset(BRACKETS.values()) | frozenset("”’」』〞〟｣")
OPENING = frozenset(BRACKETS) | frozenset("“‘「『〝｢„‚«‹\"'`$¥€£#@¿¡")
NEWLINES = "\n\r\u2028\u2029\x0b\x0c\x85"

EXTENDING_LETTERS = frozenset(
    "\u0d4e\u0e33\u0eb3\uff9e\uff9f\U000111c2\U000111c3\U0001193f\U00011941\U00011a84"
    "\U00011a85\U00011a86\U00011a87\U00011a88\U00011a89\U00011d46"
)
"""Letters that do not begin a grapheme cluster of their own, or do not end theirs."""

TRIGGERS = "".join(
    sorted(
        {
            *NARROW_END,
            *NARROW_CLAUSE,
            *WIDE_END,
            *WIDE_STRONG,
            *WIDE_COMMA,
            *WIDE_ENUMERATION,
            *DASHES,
            *SPACED_DASHES,
            *ELLIPSES,
            *BRACKETS,
            *BRACKETS.values(),
            *QUOTES,
            *CLOSING,
            *NEWLINES,
            *"|・",
        }
    )
)
