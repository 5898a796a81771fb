"""What may be spoken when the writer pauses, though nothing after it shows that it is complete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway import characters as ch
from gateway.cutting import gaps
from gateway.cutting.gaps import Gap, Level, Role
from gateway.cutting.levels import level_at, links
from gateway.cutting.soft import word_cut
from gateway.cutting.words import holds_on

CLAUSE_SILENCE_S: Final = 0.2
"""Silence after which a clause, or a full stop without white space, is taken as complete."""
WORD_SILENCE_S: Final = 0.5
"""Silence after which whole words are spoken."""

_LEAST_UNITS: Final = 6
_LEAST_CLAUSE_UNITS: Final = 8
_MAY_CLOSE: Final = frozenset(ch.TRIGGERS)


def resting_cut(
    text: str,
    marks: Sequence[tuple[int, Level]],
    *,
    openers: Sequence[str],
    limit: int,
    opens_line: bool,
    silence_s: float,
) -> tuple[int, Level] | None:
    """Where to cut `text`, the unspoken rest, after `silence_s` without more of it; or None.

    `marks` are the places to cut known so far, `openers` the signs that would close the quotes and
    brackets open before the last marks, innermost last. `limit` is where the first open tag, code
    or formula starts, which is never cut.
    """
    ending = _ending(text, openers, opens_line)
    if ending is not None and (limit == len(text) or not ending[2]):
        level, sure, _ = ending
        if level >= Level.SENTENCE:
            if sure or silence_s >= CLAUSE_SILENCE_S:
                return len(text), level
        elif silence_s >= CLAUSE_SILENCE_S and ch.units(text) >= _LEAST_CLAUSE_UNITS:
            return len(text), level
    if silence_s < CLAUSE_SILENCE_S:
        return None
    found: tuple[int, Level] | None = None
    for at, level in marks:
        if at <= limit and ch.units(text[:at]) >= _LEAST_CLAUSE_UNITS:
            found = at, level
    if silence_s >= WORD_SILENCE_S:
        word = _last_word(text[:limit])
        if word is not None and (found is None or word > found[0]):
            found = word, Level.NONE
    return found


def _ending(text: str, openers: Sequence[str], opens_line: bool) -> tuple[Level, bool, bool] | None:
    """Level of the marks that end `text`, whether more text could hardly change it, and whether a
    quote or bracket is open after it."""
    if not (text[-1:].isspace() or text[-1:] in _MAY_CLOSE):
        return None
    words = len(text)
    while words and not ch.SPEAKABLE.match(text, words - 1):
        words -= 1
    match = gaps.PATTERN.search(text, words)
    if not words or match is None:
        return None
    start = match.start()
    gap = gaps.parse(match.group(), start > words and text[start - 1].isspace())
    if gap is None or not gap.level or gap.cut < len(match.group()):
        return None
    if gap.signs and gap.signs[-1].char == "$" and "$" not in openers:
        return None
    level = level_at(text, 0, start, len(text), gap, opens_line=opens_line, final=True)
    if not level:
        return None
    if gap.dot and holds_on(text, 0, start + gap.mark, spaced=gap.spaced, opens_line=opens_line):
        return None
    opened = _left_open(gap, openers)
    if not (gap.free or gap.spaced):
        before = text[words - 1]
        if before.isdigit() or links(text, 0, start) or text[start] in ":-":
            return None
        return level, gap.closed != "" and not opened, opened
    return level, level is not Level.STRONG and not opened, opened


def _left_open(gap: Gap, openers: Sequence[str]) -> bool:
    """Whether a quote or bracket is still open after `gap`."""
    still = list(openers)
    for sign in gap.signs:
        if sign.role is Role.OPEN:
            return True
        while still and sign.char not in still.pop():
            pass
    return bool(still)


def _last_word(text: str) -> int | None:
    """The last boundary between words that no number, name or abbreviation spans."""
    end = len(text)
    while True:
        at = max((text.rfind(space, 0, end) for space in " \n\t\u3000\u00a0"), default=-1) + 1
        if at <= 0:
            break
        word = text[:at].rstrip().rsplit(None, 1)[-1:]
        if not word or not _goes_on(word[0]):
            break
        end = len(text[:at].rstrip()) - len(word[0])
    han = word_cut(text + " ", at, len(text) - 2) if len(text) > at + 2 else None
    best = max(at, han or 0)
    return best if ch.units(text[:best]) >= _LEAST_UNITS and ch.speakable(text[:best]) else None


def _goes_on(word: str) -> bool:
    """Whether `word` belongs to what will follow it."""
    if word[-1].isdigit() or (word[-1] in ch.OPENING or not ch.speakable(word)):
        return True
    return word[-1] == "." and holds_on(word, 0, len(word) - 1, spaced=False, opens_line=False)
