"""How long a piece should be, given how far ahead the listener is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gateway.characters import UNITS_PER_SECOND

ORPHAN_UNITS: Final = 9
"""A clause is not cut off when less than this is left of its sentence."""

_SHORTEST: Final = 6.0
_FIRST_CLAUSE: Final = 18.0
_FIRST_SHARES: Final = (2.0, 1.0, 0.7)
_SHARES: Final = (1.5, 1.0, 0.7)  # of a clause's least length, for "、" and the like, "，" and "；"
_USUAL_CLAUSE_S: Final = 4.0
_SHORTEST_CLAUSE_S: Final = 2.0
_LONGEST_CLAUSE_S: Final = 9.0
_EASY_LEAD_S: Final = 2.0
_SENTENCES_PER_LEAD: Final = 0.8
_LONGEST_MERGE_S: Final = 7.0
_FIRST_PIECE_SHARE: Final = 2 / 3


@dataclass(frozen=True, slots=True)
class Lengths:
    """Bounds on a piece: at most `max_chars` code points and about `max_seconds` of speech.

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

    def least_units(self, first: bool, lead: float | None) -> tuple[float, ...]:
        """Speech units from which a piece is cut at a gap, by its level.

        `first`: the piece is the first of its turn, whose sound is waited for. `lead`: seconds of
        audio in hand. With little, pieces are short so that the next one comes in time; with more,
        clauses grow and short sentences are joined, which sounds better.
        """
        sentence = _SHORTEST
        clause = _FIRST_CLAUSE
        hurried = first and (lead is None or lead <= _EASY_LEAD_S)
        if not hurried:
            seconds = _USUAL_CLAUSE_S if lead is None else max(_SHORTEST_CLAUSE_S, lead + 2)
            seconds = min(seconds, _LONGEST_CLAUSE_S, self.max_seconds * 0.75)
            clause = seconds * UNITS_PER_SECOND
            if lead is not None and lead > _EASY_LEAD_S:
                merged = min((lead - _EASY_LEAD_S) * _SENTENCES_PER_LEAD, _LONGEST_MERGE_S)
                sentence = max(sentence, min(merged, self.max_seconds * 0.6) * UNITS_PER_SECOND)
        shares = _FIRST_SHARES if hurried else _SHARES
        return (float("inf"), *(share * clause for share in shares), sentence, 0.0)
