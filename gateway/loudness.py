"""One loudness for all pieces of a session, whoever speaks them.

The first piece sets the measure. Every later one starts at the gain its speaker needs as far as is
known by then, from pieces before or from its own beginning, and moves slowly towards what it needs
itself; within speech alone, so that nothing pumps.
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
HEAR_SAMPLES = SAMPLE_RATE * 2 // 5
"""How much of a new speaker's first piece sets its level."""
_HEARD_BLOCKS = 3
"""Speech below which that says nothing."""
_SOFT = 0.02
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

    def wants(self, speaker: Hashable) -> bool:
        """Whether `begin` should get the first `HEAR_SAMPLES` of this speaker's piece: it was never
        heard, and somebody else was."""
        return self._reference is not None and speaker not in self._speakers

    def begin(self, speaker: Hashable, ahead: Pcm | None = None) -> None:
        """A new piece; `speaker` is whatever tells apart who may differ in loudness. `ahead`: how
        the piece begins, see `wants`.
        """
        new = speaker not in self._speakers
        self._speaker = self._speakers.setdefault(speaker, _Speaker())
        if self._reference is None:
            self._reference = self._speaker
        elif new and ahead is not None:
            self._hear(ahead)
        elif self._speaker.settled:
            # Pieces begin after a pause, where no step can be heard.
            self._speaker.gain_db += self._missing_db()
        self._step_db = 0.0
        self._square_sum, self._filled = 0.0, 0

    def _hear(self, ahead: Pcm) -> None:
        """Set the gain of a new speaker by how it begins."""
        reference = self._reference
        blocks = ahead[: ahead.size - ahead.size % _BLOCK].reshape(-1, _BLOCK)
        powers = np.mean(np.square(blocks, dtype=np.float64), axis=1)
        # The first sounds may be soft: what is far below the loudest is no measure.
        loudest = float(powers.max(initial=0.0))
        speech = powers[powers > max(10.0 ** (_GATE_DB / 10.0), loudest * _SOFT)]
        if reference is None or not reference.blocks or speech.size < _HEARD_BLOCKS:
            return
        missing = reference.loudness - 10.0 * float(np.log10(speech.mean()))
        self._speaker.gain_db = float(np.clip(missing, -_MOST_DB, _MOST_DB))

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
