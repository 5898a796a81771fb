"""One loudness for all pieces of a session, whoever speaks them.

The first piece sets the measure. Every later one starts with the gain its speaker needed before,
and moves slowly towards what it needs itself; within speech alone, so that nothing pumps.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from engine.api import SAMPLE_RATE, Pcm

_BLOCK = SAMPLE_RATE * 20 // 1000
_GATE_DB = -45.0
"""Blocks below are pauses, and say nothing of a speaker's loudness."""
_SETTLED_BLOCKS = 25
"""Speech after which an estimate is trusted: half a second."""
_MEMORY_BLOCKS = 500
"""Speech an estimate rests on at most: ten seconds, so that it can follow a voice that changes."""
_MOST_DB = 9.0
_STEP_DB = 0.06
"""Change of gain from one block of speech to the next: 3 dB a second, too slow to be noticed."""
_KNEE = 0.8
"""Samples above are bent, not cut."""


@dataclass(slots=True)
class _Speaker:
    """Mean power of the speech of one speaker, over so many blocks, and the gain it was given."""

    power: float = 0.0
    blocks: int = 0
    gain_db: float = 0.0

    def hear(self, power: float) -> None:
        self.blocks = min(self.blocks + 1, _MEMORY_BLOCKS)
        self.power += (power - self.power) / self.blocks

    @property
    def settled(self) -> bool:
        return self.blocks >= _SETTLED_BLOCKS

    @property
    def loudness(self) -> float:
        """dB below full scale, as RMS."""
        return float(10.0 * np.log10(self.power))


class Leveller:
    """`begin` with every piece, then `feed` its audio in order. One for a session.

    What comes out does not depend on how the audio was cut into chunks.
    """

    def __init__(self) -> None:
        self._speakers: dict[Hashable, _Speaker] = {}
        self._reference: _Speaker | None = None
        self._speaker = _Speaker()
        self._step_db = 0.0
        self._square_sum = 0.0
        self._filled = 0

    def begin(self, speaker: Hashable) -> None:
        """A new piece; `speaker` is whatever tells apart who may differ in loudness."""
        self._speaker = self._speakers.setdefault(speaker, _Speaker())
        if self._reference is None:
            self._reference = self._speaker
        self._step_db = 0.0
        self._square_sum, self._filled = 0.0, 0

    def feed(self, pcm: Pcm) -> Pcm:
        """`pcm` at the session's loudness; the same length."""
        if self._reference is None or not pcm.size:
            return pcm
        parts = []
        while pcm.size:
            part, pcm = pcm[: _BLOCK - self._filled], pcm[_BLOCK - self._filled :]
            parts.append(self._scaled(part))
            self._square_sum += float(np.dot(part, part))
            self._filled += part.size
            if self._filled == _BLOCK:
                self._end_block()
        return np.concatenate(parts)

    def _scaled(self, part: Pcm) -> Pcm:
        start = self._speaker.gain_db
        if not start and not self._step_db:
            return part
        at = np.arange(self._filled, self._filled + part.size) / _BLOCK
        gain = 10.0 ** ((start + self._step_db * at) / 20.0)
        return _soft(part * gain.astype(np.float32))

    def _end_block(self) -> None:
        power, speaker = self._square_sum / _BLOCK, self._speaker
        self._square_sum, self._filled = 0.0, 0
        speaker.gain_db += self._step_db
        self._step_db = 0.0
        if power > 10.0 ** (_GATE_DB / 10.0):
            speaker.hear(power)
            self._step_db = float(np.clip(self._missing_db(), -_STEP_DB, _STEP_DB))

    def _missing_db(self) -> float:
        """What the speaker's gain is too low by."""
        reference, speaker = self._reference, self._speaker
        if reference is None or speaker is reference:
            return 0.0
        if not (reference.settled and speaker.settled):
            return 0.0
        wanted = float(np.clip(reference.loudness - speaker.loudness, -_MOST_DB, _MOST_DB))
        return wanted - speaker.gain_db


def _soft(pcm: Pcm) -> Pcm:
    """Peaks bent to stay below 1."""
    over = np.abs(pcm) > _KNEE
    if over.any():
        room = 1.0 - _KNEE
        bent = _KNEE + room * np.tanh((np.abs(pcm[over]) - _KNEE) / room)
        pcm = pcm.copy()
        pcm[over] = np.sign(pcm[over]) * bent
    return pcm
