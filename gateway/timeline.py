"""Samples of one turn to packets on one sample clock.

Pieces follow each other without gaps but for the silence asked for, through one encoder a turn.
Packets do not depend on how a piece's audio was cut into chunks. Position 0 of a packet is the
first sample a decoder gives; sample 0 of the turn lies `encoder.pre_skip` after it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.api import Pcm
from gateway.opus import Encoder
from gateway.trimming import Trimmer


class Packet(NamedTuple):
    """One encoded frame. `samples` and `position` count what a decoder gives, pre-skip included."""

    payload: bytes
    position: int
    samples: int
    pause: bool
    """Nothing in it but silence put in by the gateway."""


class Timeline:
    """Feed pieces in order: `feed`* then `end_piece` for each, `finish` once."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._trimmer = Trimmer()
        self._pending: list[Pcm] = []
        self._pending_samples = 0
        self._encoded = 0
        self._silent_from = 0
        self.onset = 0
        """Position of the turn's first audible sample, once there is one."""
        self.samples = 0
        """Samples of the turn laid down so far: the position of the next one."""

    @property
    def audible(self) -> bool:
        """Whether the piece being fed was heard yet."""
        return self._trimmer.started

    @property
    def trailing(self) -> int:
        """Samples of silence laid down since the current piece was last heard."""
        return self._trimmer.trailing

    def feed(self, pcm: Pcm) -> list[Packet]:
        """Lay down audio of the current piece."""
        before = self._trimmer.started
        kept = self._trimmer.feed(pcm)
        if self._trimmer.started and not before and not self.samples:
            self.onset = self._trimmer.onset
        self._lay(kept, silent=False)
        return self._encode()

    def end_piece(self, pause: int) -> list[Packet]:
        """End the current piece with `pause` samples of silence, its own included.

        A piece without anything audible ends with no pause. The trimmer is new afterwards.
        """
        if self._trimmer.started:
            held = self._trimmer.finish()
            wanted = max(0, pause - self._trimmer.trailing)
            self._lay(held[:wanted], silent=False)
            self._lay(np.zeros(max(0, wanted - held.size), dtype=np.float32), silent=True)
        self._trimmer = Trimmer()
        return self._encode()

    def finish(self) -> list[Packet]:
        """End the turn: silence until the last sample is out of every decoder."""
        missing = self._encoder.pre_skip
        total = self._pending_samples + missing
        if self.samples and self._encoder.pads:
            missing += -total % self._encoder.frame_samples
            self._pending.append(np.zeros(missing, dtype=np.float32))
            self._pending_samples += missing
        packets = self._encode()
        if self._pending_samples:
            rest = np.concatenate(self._pending)
            packets.append(self._packet(rest))
            self._pending, self._pending_samples = [], 0
        return packets

    def _lay(self, pcm: Pcm, *, silent: bool) -> None:
        if pcm.size:
            self._pending.append(pcm)
            self._pending_samples += pcm.size
            self.samples += pcm.size
            if not silent:
                self._silent_from = self.samples

    def _encode(self) -> list[Packet]:
        frame = self._encoder.frame_samples
        if self._pending_samples < frame:
            return []
        audio = np.concatenate(self._pending) if len(self._pending) > 1 else self._pending[0]
        whole = audio.size - audio.size % frame
        packets = [self._packet(audio[at : at + frame]) for at in range(0, whole, frame)]
        self._pending, self._pending_samples = [audio[whole:]], audio.size - whole
        return packets

    def _packet(self, pcm: Pcm) -> Packet:
        position = self._encoded
        self._encoded += pcm.size
        # A decoder gives this packet's speech up to pre_skip samples later, in the next one.
        pause = position >= self._silent_from + self._encoder.pre_skip
        return Packet(self._encoder.encode(pcm), position, pcm.size, pause)
