"""When each word of a piece is said: as the engine tells, else reckoned from the audio's length.

Reckoning shares the audio out by how long words usually take. Words are those of the spoken text;
each names the part of the written text that it says, as far as that is known.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from engine.api import WordTime
from gateway.spoken import Spoken

_WIDE = "\u2e80-\u2fff\u3005-\u3007\u3031-\u318f\u31a0-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WIDE_LETTERS = re.compile(f"[{_WIDE}]")
_WORD = re.compile(f"[{_WIDE}]|[^\\s{_WIDE}]+")
_LETTER, _WIDE_LETTER, _DIGIT, _SIGN = 1.0, 3.0, 4.0, 5.0
_COMMA, _STOP = 2.0, 4.0
"""How long characters take, in Latin letters; marks are heard as rests."""


class Word(NamedTuple):
    """One word: code points `start..end` of the turn's text, `spoken` where that differs."""

    start: int
    end: int
    spoken: str
    start_sample: int
    end_sample: int


class _Token(NamedTuple):
    low: int
    high: int
    weight: float
    rest: float


def word_times(said: Spoken, start_sample: int, end_sample: int) -> list[Word]:
    """The words of a piece that sounds from `start_sample` to `end_sample`, in order.

    They do not overlap. Words that say one and the same construct of the writing are one.
    """
    tokens = list(_tokens(said.text))
    if not tokens:
        return []
    total = sum(token.weight + token.rest for token in tokens) - tokens[-1].rest
    samples = end_sample - start_sample
    words: list[Word] = []
    at, low = 0.0, 0
    for token in tokens:
        start, end = said.written(token.low, token.high)
        begin = start_sample + int(samples * at / total)
        until = start_sample + int(samples * (at + token.weight) / total)
        at += token.weight + token.rest
        last = words[-1] if words else None
        if last is not None and start < last.end:
            words.pop()
            start, end, begin = last.start, max(end, last.end), last.start_sample
        else:
            low = token.low
        words.append(Word(start, end, said.text[low : token.high], begin, until))
    return words


def told_words(
    said: Spoken, told: Iterable[WordTime], start_sample: int, end_sample: int
) -> list[Word]:
    """The words of a piece as the engine tells them, on the turn's clock, what is heard of it lying
    at `start_sample..end_sample`; else as `word_times`."""
    before = len(said.text) - len(said.text.lstrip())
    words: list[Word] = []
    low = 0
    for word in told:
        start, end = said.written(before + word.start, before + word.end)
        begin, until = (
            min(max(start_sample, sample), end_sample)
            for sample in (word.start_sample, word.end_sample)
        )
        last = words[-1] if words else None
        if last is not None and start < last.end:
            words.pop()
            start, end, begin = last.start, max(end, last.end), last.start_sample
        else:
            low = before + word.start
        words.append(Word(start, end, said.text[low : before + word.end], begin, until))
    return words


def _tokens(text: str) -> Iterator[_Token]:
    for match in _WORD.finditer(text):
        low, high = match.span()
        while low < high and _is_mark(text, low, high):
            low += 1
        while high > low and _is_mark(text, high - 1, high):
            high -= 1
        if low < high:
            yield _Token(low, high, _weight(text[low:high]), _rest(text[high : match.end() + 1]))


def _is_mark(text: str, at: int, end: int) -> bool:
    """Whether a character at the edge of a word is not said with it."""
    character = text[at]
    if character in "%‰#&@":
        return False
    if character in "-.":
        return not (at + 1 < end and text[at + 1].isdigit())
    return unicodedata.category(character)[0] in "PZC"


def _weight(word: str) -> float:
    weight = 0.0
    for character in word:
        if character.isdigit():
            weight += _DIGIT
        elif character.isalpha():
            weight += _WIDE_LETTER if _WIDE_LETTERS.match(character) else _LETTER
        elif unicodedata.category(character)[0] == "S" or character in "%‰#&@":
            weight += _SIGN
    return max(weight, _LETTER)


def _rest(marks: str) -> float:
    if any(mark in ".!?…。！？" for mark in marks):
        return _STOP
    if any(mark in ",;:，、；：—" for mark in marks):
        return _COMMA
    return 0.0
