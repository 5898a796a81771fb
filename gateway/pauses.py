"""How long the silence after a piece is, from what its punctuation asks for."""

from __future__ import annotations

from collections.abc import Mapping

from engine.api import SAMPLE_RATE
from gateway.cutting import Pause

SHORTEST = SAMPLE_RATE * 70 // 1000
"""Samples: a 60 ms frame and the encoder's look-ahead, so that the last word of a piece is out even
when nothing follows for a while."""
PAUSES: Mapping[Pause, int] = {
    "none": SHORTEST,
    "clause": SAMPLE_RATE * 160 // 1000,
    "sentence": SAMPLE_RATE * 320 // 1000,
    "paragraph": SAMPLE_RATE * 480 // 1000,
}
"""Samples of silence after a piece, from its last audible sample to the next piece."""
