"""Which language a piece is in, and which each stretch of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from engine.frontend.addresses import without_addresses
from engine.frontend.han import HAN

Spoken = Literal["en", "zh"]

_HAN = re.compile(f"[{HAN}]")
_LATIN_WORD = re.compile(r"[^\W\d_" + HAN + r"]+(?:['’][^\W\d_" + HAN + r"]+)*")
_PARTS = re.compile(f"[{HAN}]|[^\\W\\d_{HAN}]")
_NUMBER_BEFORE = re.compile(r"(?<![A-Za-z\d.,:/%-])[￥¥$€]?\d[\d.,:/%-]*$")
_CHINESE_MARKS = re.compile("[，。！？；：、「」『』《》【】￥]")


@dataclass(frozen=True, slots=True)
class Run:
    """A stretch of text in one language."""

    language: Spoken
    text: str


def main_language(text: str, default: Spoken = "en") -> Spoken:
    """The language most of the text is in.

    A Chinese character weighs as much as a word: a sentence with English names in it stays Chinese.
    Addresses do not count. Text of digits and marks only is Chinese when its marks are, else
    `default`.
    """
    text = without_addresses(text)
    han = len(_HAN.findall(text))
    words = len(_LATIN_WORD.findall(text))
    if han or words:
        return "zh" if han >= words else "en"
    return "zh" if _CHINESE_MARKS.search(text) else default


def runs(text: str, main: Spoken) -> list[Run]:
    """Split into stretches of one script.

    What is neither (digits, marks, spaces) stays with the stretch before it, at the start with the
    one after it; but a number right before a Chinese character goes with that ("50元"). Text
    without letters is one run in `main`.
    """
    out: list[Run] = []
    start, language = 0, None
    for letter in _PARTS.finditer(text):
        here: Spoken = "zh" if _HAN.match(letter.group()) else "en"
        if language is None:
            language = here
        elif here != language:
            end = letter.start()
            if here == "zh" and (number := _NUMBER_BEFORE.search(text, start, end)):
                end = number.start()
            out.append(Run(language, text[start:end]))
            start, language = end, here
    if start < len(text):
        out.append(Run(language or main, text[start:]))
    return out
