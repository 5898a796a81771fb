"""How long a piece should be, given how far ahead the listener is."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.cutting.characters import UNITS_PER_SECOND
from gateway.cutting.gaps import Level

_SHORTEST = 6.0
_FIRST = {Level.STRONG: 8.0, Level.COMMA: 12.0, Level.ENUMERATION: 30.0}
_SHARE = {Level.STRONG: 0.7, Level.COMMA: 1.0, Level.ENUMERATION: 1.5}
_USUAL_CLAUSE_S = 4.0
_SHORTEST_CLAUSE_S = 2.0
_LONGEST_CLAUSE_S = 9.0
_EASY_LEAD_S = 2.0
_SENTENCES_PER_LEAD = 0.8
_LONGEST_MERGE_S = 7.0
_FIRST_PIECE_SHARE = 2 / 3

ORPHAN_UNITS = _SHORTEST
"""A clause is not cut off when less than this is left of its sentence."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Bounds on a piece: at most `max_chars` code points and `max_seconds` of speech.

    Raises ValueError for bounds under 20 code points or 2 seconds.
    """

    max_chars: int = 200
    max_seconds: float = 12.0

    def __post_init__(self) -> None:
        if self.max_chars < 20 or self.max_seconds < 2:
            raise ValueError("a piece must be allowed at least 20 code points and 2 seconds")

    def cap_units(self, first: bool) -> float:
        """The most that a piece may hold, in speech units; a turn's first piece gets less."""
        cap = self.max_seconds * UNITS_PER_SECOND
        return cap * _FIRST_PIECE_SHARE if first else cap

    def least_units(self, level: Level, first: bool, lead: float | None) -> float:
        """Speech units from which a piece is cut at a gap of `level`."""
        if level >= Level.PARAGRAPH:
            return 0.0
        if level is Level.SENTENCE:
            if first or lead is None or lead <= _EASY_LEAD_S:
                return _SHORTEST
            merged = min((lead - _EASY_LEAD_S) * _SENTENCES_PER_LEAD, _LONGEST_MERGE_S)
            return max(_SHORTEST, min(merged, self.max_seconds * 0.6) * UNITS_PER_SECOND)
        if first:
            return _FIRST[level]
        seconds = _USUAL_CLAUSE_S if lead is None else max(_SHORTEST_CLAUSE_S, lead + 2)
        seconds = min(seconds, _LONGEST_CLAUSE_S, self.max_seconds * 0.75)
        return _SHARE[level] * seconds * UNITS_PER_SECOND
