"""How long the silence after a piece is, from what its punctuation asks for."""

from __future__ import annotations

from collections.abc import Mapping

from engine.api import SAMPLE_RATE
from gateway.cutting import Pause

SHORTEST = SAMPLE_RATE * 70 // 1000
"""Samples: a 60 ms frame and the encoder's look-ahead, so that the last word of a piece is out even
when nothing follows for a while."""
Pauses = Mapping[Pause, int]
PAUSES: Pauses = {
    "none": SHORTEST,
    "clause": SAMPLE_RATE * 160 // 1000,
    "sentence": SAMPLE_RATE * 320 // 1000,
    "paragraph": SAMPLE_RATE * 480 // 1000,
}
"""Samples of silence after a piece, from its last audible sample to the next piece."""
SETTABLE: tuple[Pause, ...] = ("clause", "sentence", "paragraph")


def with_milliseconds(pauses: Pauses, **wanted: int | None) -> Pauses:
    """`pauses` with those changed that `wanted` gives, in milliseconds; never below `SHORTEST`."""
    changed = {
        kind: max(SHORTEST, SAMPLE_RATE * value // 1000)
        for kind in SETTABLE
        if (value := wanted.get(kind)) is not None
    }
    return {**pauses, **changed}


def milliseconds(samples: int) -> int:
    return samples * 1000 // SAMPLE_RATE
