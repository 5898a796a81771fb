"""Where a piece is cut that would otherwise grow over the cap."""

from __future__ import annotations

from collections.abc import Sequence

from gateway import characters as ch
from gateway.cutting.gaps import Level
from gateway.cutting.soft import grapheme_cut, word_cut

_LEVEL_WORTH = 0.15


def reach_of(text: str, origin: int, cap_units: float, max_chars: int) -> int:
    """The index up to which a piece that starts at `origin` may go."""
    low, high = origin, min(len(text), origin + max_chars)
    while low < high:
        middle = (low + high + 1) // 2
        if ch.units(text[origin:middle]) <= cap_units:
            low = middle
        else:
            high = middle - 1
    return low


def best_cut(
    text: str,
    low: int,
    high: int,
    *,
    marks: Sequence[tuple[int, Level]],
    held: Sequence[tuple[int, Level]],
    opener: int | None,
) -> tuple[int, Level]:
    """The best index in `low..high` at which the piece `text` may be cut, and its level.

    In order: after a mark, before the bracket or quote that is open at the end (at `opener`),
    after a mark inside it, between words, between graphemes. A mark further on is better, and so
    is a stronger one.
    """
    for places in (marks, held):
        fitting = [place for place in places if low <= place[0] <= high]
        if fitting:
            return max(fitting, key=lambda place: place[0] + _LEVEL_WORTH * high * place[1])
        if opener is not None and low <= opener <= high and text[opener - 1].isspace():
            return opener, Level.NONE
    found = word_cut(text, low, high)
    return (grapheme_cut(text, low, high) if found is None else found), Level.NONE
