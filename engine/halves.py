"""Where to part a text that is short to write and long to say, such as a list of numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from engine.api import WordTime

_SPACE = re.compile(r"\s+")
_MARK = re.compile(r"[^\w\s.,:'’/-]+|(?<!\d)[.,:]+|[.,:]+(?!\d)")


def middle(text: str) -> int | None:
    """Code point before which to part `text`: after white space, else after a mark, else anywhere,
    as near to the middle as can be. None when there is nothing on one side."""
    for pattern in (_SPACE, _MARK):
        ends = [found.end() for found in pattern.finditer(text)]
        apart = [end for end in ends if text[:end].strip() and text[end:].strip()]
        if apart:
            return min(apart, key=lambda end: abs(2 * end - len(text)))
    return len(text) // 2 or None


def moved(words: Sequence[WordTime], characters: int, samples: int) -> tuple[WordTime, ...]:
    """Word times of a later part, on the clock of the whole."""
    return tuple(
        WordTime(
            word.start + characters,
            word.end + characters,
            word.start_sample + samples,
            word.end_sample + samples,
        )
        for word in words
    )
