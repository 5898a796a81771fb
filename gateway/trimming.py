"""Silence at both ends of a piece, taken off while the piece is still being made.

What is kept does not depend on how the audio was cut into chunks.
"""

from __future__ import annotations

import numpy as np

from engine.api import AUDIBLE, SAMPLE_RATE, Pcm
from gateway.seams import fade_in

LEAD_IN = SAMPLE_RATE * 10 // 1000
"""Samples kept before the first audible one."""
HELD = SAMPLE_RATE * 240 // 1000
"""Most samples of silence withheld until it is known whether speech follows. A longer silence is
passed on, so that a pause within a piece never starves the listener by more than this."""

_NOTHING: Pcm = np.zeros(0, dtype=np.float32)


class Trimmer:
    """Feed a piece's audio, take what is to be heard now; `finish` gives the silence at its end."""

    def __init__(self) -> None:
        self._started = False
        self._held: Pcm = _NOTHING
        self.trailing = 0
        """Samples of silence passed on since the last audible sample."""
        self.onset = 0
        """Samples passed on before the first audible one."""
        self.skipped = 0
        """Samples not passed on before these."""

    @property
    def started(self) -> bool:
        """Whether anything audible came yet."""
        return self._started

    def feed(self, pcm: Pcm) -> Pcm:
        """Samples to be heard: from just before the first audible one, without trailing silence."""
        audible = np.flatnonzero(np.abs(pcm) > AUDIBLE)
        audio = np.concatenate((self._held, pcm)) if self._held.size else pcm
        offset = audio.size - pcm.size
        if not self._started:
            if not audible.size:
                self._held = audio[-LEAD_IN:]
                self.skipped += audio.size - self._held.size
                return _NOTHING
            self._started = True
            first = int(audible[0])
            skipped = max(0, offset + first - LEAD_IN)
            self.skipped += skipped
            audio, offset = audio[skipped:], offset - skipped
            self.onset = offset + first
            audio = fade_in(audio, self.onset)
        if audible.size:
            self.trailing = 0
            end = offset + int(audible[-1]) + 1
        else:
            end = 0
        passed = max(end, audio.size - HELD)
        self.trailing += passed - end
        self._held = audio[passed:]
        return audio[:passed]

    def finish(self) -> Pcm:
        """Silence withheld at the end: at most `HELD` samples; none of a piece without sound."""
        held = self._held if self._started else _NOTHING
        self._held = _NOTHING
        return held
