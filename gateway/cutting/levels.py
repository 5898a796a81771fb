"""How strongly one gap of a text invites a cut, given the words around it."""

from __future__ import annotations

import re
from typing import Final

from gateway import characters as ch
from gateway.cutting.gaps import Gap, Level
from gateway.cutting.words import dot_ends, is_list_label

_LINE_LABEL: Final = re.compile(
    r"(?:\d{1,3}|[A-Za-z])[.)）、．]|[一二三四五六七八九十]{1,3}[、）)．.]"
)
_LABEL_REACH: Final = 5
_SHORT_LINE: Final = 45
"""Speech units up to which a line was ended by its writer, not wrapped."""
_ENTITY: Final = re.compile(r"&#?\w{1,8}$")
_LINKED: Final = re.compile(r"[/=&@#%]")
_RUN_REACH: Final = 40


def level_at(
    text: str, low: int, start: int, end: int, gap: Gap, *, opens_line: bool, final: bool
) -> Level | None:
    """Level of the gap `text[start:end]`, which has a mark, or None when what follows does not show
    it yet.

    `low` is the first index that may be looked at: the start of the piece; `opens_line` tells
    whether it begins a line. `end < len(text)` unless `final`.
    """
    level = gap.level
    before = text[start - 1] if start > low else ""
    after = text[end] if end < len(text) else ""
    mark = text[start + gap.mark]
    if not gap.spaced and after:
        if end - start == 1 and before.isdigit() and after.isdigit() and mark not in ch.STAND_ALONE:
            return Level.NONE
        if not gap.free and not _narrow_mark_cuts(
            text, low, start, gap, before=before, after=after
        ):
            return Level.NONE
    if gap.dot:
        ends = dot_ends(text, low, start + gap.mark, end, opens_line=opens_line, final=final)
        if not ends:
            return None if ends is None else Level.STRONG if gap.line else Level.NONE
    if gap.closed and after:
        level = _closed_level(level, gap.closed, after)
    if gap.ellipsis and level is Level.STRONG and gap.spaced and after.isupper():
        if after == "I" and end + 1 == len(text) and not final:
            return None
        return level if after == "I" and text[end + 1 : end + 2] in " '’" else Level.SENTENCE
    if gap.line and level < Level.SENTENCE:
        return _line_level(text, low, start, end, gap, opens_line=opens_line, final=final)
    if mark in "、：:" and is_list_label(text, low, start + gap.mark, opens_line=opens_line):
        return Level.NONE
    if mark == ";" and _ENTITY.search(text[max(low, start - 10) : start]):
        return Level.NONE
    return level


def _closed_level(level: Level, closer: str, after: str) -> Level:
    """Level of a mark inside the quote or bracket that closes after it: the sentence around it may
    go on."""
    if level > Level.SENTENCE:
        return level
    if closer in ch.BRACKETS.values():
        if level < Level.SENTENCE or after.islower():
            return Level.NONE
        return level if after.isupper() or after.isdigit() else Level.COMMA
    if after in "とっ":  # the Japanese particle of quotation
        return Level.NONE
    return Level.STRONG if level is Level.SENTENCE and after.islower() else level


def _narrow_mark_cuts(
    text: str, low: int, start: int, gap: Gap, *, before: str, after: str
) -> bool:
    """Whether a Latin mark without white space after it may cut."""
    mark = text[start + gap.mark]
    if ch.CJK.match(after) or (mark != "." and before and ch.CJK.match(before)):
        return True
    if gap.ellipsis:
        return before.isalpha() and after.isalpha()
    if mark in "!?" and after.isupper() and before.islower():
        return not links(text, low, start)
    return False


def links(text: str, low: int, end: int) -> bool:
    """Whether the run without white space that ends at `end` looks like a URL or an address."""
    run = text[max(low, end - _RUN_REACH) : end].rsplit(None, 1)
    return bool(run) and _LINKED.search(run[-1]) is not None


def _line_level(
    text: str, low: int, start: int, end: int, gap: Gap, *, opens_line: bool, final: bool
) -> Level | None:
    if gap.bullet:
        return Level.SENTENCE
    line = max(text.rfind(c, low, start) for c in "\n\r") + 1
    if (line > low or opens_line) and text[max(line, low) : start].lstrip(" ")[:1] == "#":
        return Level.SENTENCE
    if _LINE_LABEL.match(text, end, end + _LABEL_REACH):
        return Level.SENTENCE
    if end + _LABEL_REACH > len(text) and not final:
        return None
    written = text[max(line, low) : start]
    by_hand = len(written) <= _SHORT_LINE and ch.units(written) <= _SHORT_LINE
    if by_hand and not text[end : end + 1].islower():
        return Level.SENTENCE
    return Level.STRONG
