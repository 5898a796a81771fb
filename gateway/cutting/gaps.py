"""What stands between two words: marks, quotes, brackets, white space.

A gap runs from the first mark that matters to the next letter or digit. Its structure depends on
nothing but its own text and on whether white space comes before it, so it is parsed once and
remembered; what depends on the neighbouring words is decided in `gateway.cutting.levels`.
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache
from typing import Final, NamedTuple

import regex

from gateway import characters as ch


class Level(IntEnum):
    """How strongly a gap invites a cut."""

    NONE = 0
    ENUMERATION = 1
    COMMA = 2
    STRONG = 3
    SENTENCE = 4
    PARAGRAPH = 5


class Role(IntEnum):
    """What a bracket or quote does; `TOGGLE` closes if it can and opens otherwise."""

    OPEN = 0
    CLOSE = 1
    TOGGLE = 2


class Sign(NamedTuple):
    """A bracket or quote at `offset` in its gap."""

    offset: int
    char: str
    role: Role


class Gap(NamedTuple):
    """The structure of a gap. Offsets count from its start.

    `cut`: everything before it belongs to the text on the left, unless a quote before it turns out
    to open. `mark`: the first mark or line end, -1 if there is none. `plain`: `level` holds
    whatever words are around. `spaced`: white space before the cut. `free`: a mark that needs no
    white space. `closed`: the last quote or bracket that closes between the mark and the cut.
    `dot`: a single full stop is all that ends a sentence here. `line`: a single line end.
    `bullet`: a line opener after it.
    """

    level: Level
    plain: bool
    cut: int
    mark: int
    spaced: bool
    free: bool
    closed: str
    ellipsis: bool
    dot: bool
    line: bool
    bullet: bool
    signs: tuple[Sign, ...]


_TRIGGER: Final = (
    f"[{re.escape(ch.TRIGGERS)}]"
    r"(?!(?<=[A-Za-z0-9][.,:'’-])[A-Za-z0-9])"  # in a word or a number: never a cut
)
PATTERN: Final = re.compile(_TRIGGER + r"[\W_]*")

_LEVELS: Final = {
    **dict.fromkeys(ch.NARROW_END + ch.WIDE_END, Level.SENTENCE),
    **dict.fromkeys(";:" + ch.WIDE_STRONG + ch.DASHES + ch.ELLIPSES, Level.STRONG),
    **dict.fromkeys("," + ch.WIDE_COMMA, Level.COMMA),
    **dict.fromkeys(ch.WIDE_ENUMERATION, Level.ENUMERATION),
}
_NARROW: Final = frozenset(ch.NARROW_END + ch.NARROW_CLAUSE)
_ENDS: Final = frozenset(ch.NARROW_END + ch.WIDE_END)
_TRAILING: Final = regex.compile(r"[\p{M}\p{Cf}\p{EMod}\p{Extended_Pictographic}\p{RI}]")
_ADJACENT: Final = frozenset("*_~%‰°™®©")
_ELLIPSIS: Final = re.compile(r"[…‥⋯]|\.{2,}|\.(?: \.){2,}|。{2,}|．{2,}|・{2,}")
_BULLETS: Final = frozenset("-*+•·◦▪‣#>|")
_LINE_ENDS: Final = re.compile("\r\n|[\n\r\x0b\x0c\x85]|(\u2029)")
_LAYOUT_END: Final = "\u2028"
"""Ends a line of a list or table, whatever its last mark: a sentence, but no paragraph."""
_LONGEST_REMEMBERED: Final = 12
_LONGEST_PARSED: Final = 64
"""What a gap holds beyond this goes with the text after it."""


def parse(gap: str, after_space: bool) -> Gap | None:
    """Structure of `gap`, or None when nothing in it matters.

    `after_space`: white space, or the start of the piece, comes before the gap.
    """
    if len(gap) <= _LONGEST_REMEMBERED:
        return _remembered(gap, after_space)
    return _parse(gap[:_LONGEST_PARSED], after_space)


def _parse(gap: str, after_space: bool) -> Gap | None:
    level = Level.NONE
    cut = mark = -1
    spaced = free = False
    closed = ""
    signs: list[Sign] = []
    left = True
    fresh = after_space  # white space or an opening sign comes before the character
    for i, char in enumerate(gap):
        role = _role(gap, i, fresh)
        if role is not None:
            signs.append(Sign(i, char, role))
            if left and mark >= 0:
                left = role is not Role.OPEN
                closed = char if left else closed
        elif char.isspace():
            if mark < 0 and char in ch.NEWLINES:
                mark = i
            spaced = spaced or (left and mark >= 0)
        elif left:
            found = _level(gap, i, fresh)
            if found:
                level = max(level, found)
                free = free or char not in _NARROW
                mark = i if mark < 0 else mark
            elif mark >= 0:
                left = bool(_TRAILING.match(char)) or (not fresh and char in _ADJACENT)
        if left and mark >= 0:
            cut = i + 1
        fresh = char.isspace() or role is Role.OPEN
    if mark < 0 and not signs:
        return None
    body = gap[: max(cut, 0)]
    ends = [c for c in _ELLIPSIS.sub("", body) if c in _ENDS]
    ellipsis = _ELLIPSIS.search(body) is not None
    if level is Level.SENTENCE and not ends:
        level = Level.STRONG
    ended = _LAYOUT_END in body
    lines = sum(1 + bool(m.group(1)) for m in _LINE_ENDS.finditer(body))
    if lines > 1:
        level = Level.PARAGRAPH
    elif ended or lines:
        level = max(level, Level.SENTENCE if ended else Level.STRONG)
    dot = ends == ["."] and level is Level.SENTENCE
    plain = level is Level.NONE or lines > 1
    if not (plain or dot or lines or ended or ellipsis or closed or gap[mark] in "、：:;"):
        plain = spaced or (free and (len(gap) > 1 or gap in ch.STAND_ALONE))
    return Gap(
        level,
        plain,
        cut,
        mark,
        spaced,
        free,
        closed,
        ellipsis,
        dot,
        lines == 1,
        (ended or lines > 0) and gap[cut : cut + 1] in _BULLETS,
        tuple(signs),
    )


_remembered = lru_cache(maxsize=4096)(_parse)


def _after_line_end(before: str) -> bool:
    return before != "" and before.rstrip(" \t")[-1:] in ch.NEWLINES


def _level(gap: str, i: int, fresh: bool) -> Level:
    char = gap[i]
    following = gap[i + 1 : i + 2]
    if char in ch.SPACED_DASHES:
        before = gap[:i].rstrip(char)
        run = len(gap) - len(before) - len(gap[len(before) :].lstrip(char))
        alone = fresh and gap[i + run : i + run + 1].isspace()
        if _after_line_end(before) or not (alone or (char == "-" and run > 1)):
            return Level.NONE
        return Level.STRONG
    if char == "|":
        return Level.COMMA if fresh and not _after_line_end(gap[:i]) else Level.NONE
    if char == "・":
        return Level.STRONG if following == "・" else Level.NONE
    if char == "." and following and following in ch.NARROW_CLAUSE:
        return Level.NONE
    if char in ";:" and fresh and following and not following.isspace():
        return Level.NONE  # a face
    return _LEVELS.get(char, Level.NONE)


def _role(gap: str, i: int, fresh: bool) -> Role | None:
    char = gap[i]
    last = i + 1 == len(gap)
    before_space = not last and gap[i + 1].isspace()
    if char in "\"'`":
        if char == "`" and "``" in gap[max(0, i - 1) : i + 2]:
            return None  # a fence, not a quote
        if fresh:
            return None if before_space else Role.OPEN
        if char == "'" and i == 0 and last:
            return None  # an apostrophe
        return Role.CLOSE if before_space else Role.TOGGLE
    if char == "$":
        return None if before_space and fresh else Role.TOGGLE
    if char in "“‘":
        return Role.OPEN if fresh else Role.TOGGLE
    if char in "«»‹›":
        return Role.TOGGLE
    if char == "’" and i == 0 and last:
        return None
    if char == "<":
        return None if before_space else Role.OPEN
    if char == ">":
        return None if fresh else Role.CLOSE
    if char in ch.BRACKETS or char in ch.QUOTES:
        return Role.OPEN
    return Role.CLOSE if char in ch.CLOSING else None
