"""Which phonemes say which words of a text.

The front end reads whole sentences: numbers become words, marks vanish, letters are read by what
stands around them. Each word is therefore also read by itself, and the two readings are matched.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable
from difflib import SequenceMatcher
from typing import NamedTuple

from engine.frontend.han import HAN
from engine.frontend.phonemes import is_mark

_WORD = re.compile(f"[{HAN}]|[^\\s{HAN}]+")
_SAID_SIGNS = frozenset("%‰#&@")


class SpokenWord(NamedTuple):
    """Code points `start..end` of the text, said by the symbols `first..last` of its phonemes."""

    start: int
    end: int
    first: int
    last: int


def spoken_words(text: str, phonemes: str, read: Callable[[str], str]) -> list[SpokenWord]:
    """The words (Mandarin: characters) of a text that are said, in order.

    phonemes: how the text as a whole is read. read: phonemes of one word by itself, "" of one that
    has no sound.
    """
    sounds = [at for at, symbol in enumerate(phonemes) if not is_mark(symbol)]
    words = _words(text)
    apart = [without_marks(read(text[start:end])) for start, end in words]
    heard = "".join(phonemes[at] for at in sounds)
    found = []
    matched = _matching("".join(apart), heard)
    at = 0
    for (start, end), alone in zip(words, apart, strict=True):
        first, last = matched(at), matched(at + len(alone))
        at += len(alone)
        if alone and first < last:
            found.append(SpokenWord(start, end, sounds[first], sounds[last - 1] + 1))
    return found


def without_marks(phonemes: str) -> str:
    """What can be heard: no spaces, no punctuation."""
    return "".join(symbol for symbol in phonemes if not is_mark(symbol))


def _words(text: str) -> list[tuple[int, int]]:
    """Code points of each word without the marks around it."""
    found = []
    for match in _WORD.finditer(text):
        start, end = match.span()
        while start < end and _is_edge(text, start, end):
            start += 1
        while end > start and _is_edge(text, end - 1, end):
            end -= 1
        if start < end:
            found.append((start, end))
    return found


def _is_edge(text: str, at: int, end: int) -> bool:
    """Whether a character at the edge of a word is not said with it."""
    character = text[at]
    if character in "-." and at + 1 < end and text[at + 1].isdigit():
        return False
    return character not in _SAID_SIGNS and unicodedata.category(character)[0] in "PZC"


def _matching(apart: str, heard: str) -> Callable[[int], int]:
    """Places in one string -> places in the other, in proportion where they differ."""
    if apart == heard:
        return lambda at: at
    codes = SequenceMatcher(None, apart, heard, autojunk=False).get_opcodes()
    starts = [low for _, low, _, _, _ in codes]

    def place(at: int) -> int:
        if at >= len(apart):
            return len(heard)
        kind, low, high, other, until = codes[bisect_right(starts, at) - 1]
        if kind == "equal" or high == low:
            return other + at - low
        return other + round((at - low) * (until - other) / (high - low))

    return place
