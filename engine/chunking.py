"""How many frames to gather before the next decode of one stream: pure arithmetic.

Small first decodes give an early first packet; later ones grow with the listener's lead, because a
decode of many frames costs much less a frame than a decode of few.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.api import SAMPLE_RATE, SAMPLES_PER_FRAME


@dataclass(frozen=True, slots=True)
class ChunkPolicy:
    """Frames a decode. `first` must exceed what the codec holds back, or no sample comes out."""

    first: int = 3
    smallest: int = 4
    largest: int = 24
    lead_share: float = 0.4
    """A decode may be worth at most this share of the listener's lead: while its frames are
    gathered the lead shrinks by their duration in the worst case of generation at real time."""

    def wanted(self, sent_samples: int, lead_seconds: float) -> int:
        """Frames to gather now; `lead_seconds` is audio handed out and not yet played."""
        if sent_samples == 0:
            return self.first
        affordable = int(lead_seconds * self.lead_share * SAMPLE_RATE / SAMPLES_PER_FRAME)
        return max(self.smallest, min(self.largest, affordable))
