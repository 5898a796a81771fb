"""How many frames to gather before the next decode of one stream: pure arithmetic.

Small first decodes give an early first packet; later ones grow with the listener's lead, because a
decode of many frames costs much less a frame than a decode of few.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.api import AUDIBLE, SAMPLE_RATE, SAMPLES_PER_FRAME, Pcm

FIRST_PACKET = SAMPLE_RATE // 50
"""Samples from the first audible one on that make a packet, whatever its length up to 20 ms."""


@dataclass(frozen=True, slots=True)
class ChunkPolicy:
    """Frames a decode. `first` must exceed what the codec holds back, or no sample comes out."""

    first: int = 2
    smallest: int = 4
    largest: int = 24
    lead_share: float = 0.4
    """A decode may be worth at most this share of the listener's lead: while its frames are
    gathered the lead shrinks by their duration in the worst case of generation at real time."""

    def wanted(self, decoded: int, heard: int, lead_seconds: float) -> int:
        """Frames to gather now.

        decoded: frames decoded so far; heard, lead_seconds: see `Listener`. Until a packet can be
        heard, every frame may be the one that completes it.
        """
        if not decoded:
            return self.first
        if heard < FIRST_PACKET:
            return 1
        affordable = int(lead_seconds * self.lead_share * SAMPLE_RATE / SAMPLES_PER_FRAME)
        return max(self.smallest, min(self.largest, affordable))


@dataclass(slots=True)
class Listener:
    """What the listener of one piece was given, silence before the first sound left out: nobody
    waits for its end."""

    heard: int = 0
    """Samples handed out from the first audible one on."""
    since: float = 0.0
    """When the first of them was, in seconds."""

    def hand_out(self, pcm: Pcm, now: float) -> None:
        """Samples given at a time."""
        if self.heard:
            self.heard += pcm.size
            return
        audible = np.flatnonzero(np.abs(pcm) > AUDIBLE)
        if audible.size:
            self.heard = pcm.size - int(audible[0])
            self.since = now

    @property
    def dry_at(self) -> float | None:
        """When all of it has been played; None before the first sound."""
        return self.since + self.heard / SAMPLE_RATE if self.heard else None

    def lead(self, now: float) -> float:
        """Seconds of audio handed out and not yet played."""
        return 0.0 if self.dry_at is None else self.dry_at - now
