"""Samples of one turn to packets on one sample clock.

Pieces follow each other without gaps but for the silence asked for, through one encoder a turn.
Packets do not depend on how a piece's audio was cut into chunks. Position 0 of a packet is the
first sample a decoder gives; sample 0 of the turn lies `encoder.pre_skip` after it.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from engine.api import Pcm
from gateway.encoding import Encoder
from gateway.loudness import HEAR_SAMPLES, Leveller
from gateway.seams import FADE, fade_out, ring_out
from gateway.trimming import Trimmer


class Packet(NamedTuple):
    """One encoded frame. `samples` and `position` count what a decoder gives, pre-skip included."""

    payload: bytes
    position: int
    samples: int
    pause: bool
    """Nothing in it but silence put in by the gateway."""


class Timeline:
    """Feed pieces in order: `begin`, `feed`*, then `end_piece` for each, `finish` once."""

    def __init__(self, encoder: Encoder, leveller: Leveller | None = None) -> None:
        self._encoder = encoder
        self._leveller = leveller or Leveller()
        self._trimmer = Trimmer()
        self._pending: list[Pcm] = []
        self._pending_samples = 0
        self._encoded = 0
        self._silent_from = 0
        self._latest: Pcm = np.zeros(0, dtype=np.float32)
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

    def wants(self, speaker: Hashable) -> int:
        """Samples of a piece that `begin` should get, if they come."""
        return HEAR_SAMPLES if self._leveller.wants(speaker) else 0

    @property
    def skipped(self) -> int:
        """Samples of silence at the beginning of the current piece that were left out."""
        return self._trimmer.skipped

    def begin(self, speaker: Hashable, ahead: Pcm | None = None) -> None:
        """A piece starts; `speaker` is whatever tells apart who may differ in loudness."""
        self._leveller.begin(speaker, ahead)

    def feed(self, pcm: Pcm) -> list[Packet]:
        """Lay down audio of the current piece."""
        before = self._trimmer.started
        kept = self._trimmer.feed(pcm)
        if self._trimmer.started and not before and not self.samples:
            self.onset = self._trimmer.onset
        # Only here, so that what counts as silence is the engine's own.
        self._lay(self._leveller.feed(kept), silent=False)
        return self._encode()

    def end_piece(self, pause: int, most: int | None = None) -> list[Packet]:
        """End the current piece with `pause` samples of silence, its own included. Of more than
        `most` samples the packets come with `rest`.

        A piece without anything audible ends with no pause; one that breaks off rings out within
        it. The trimmer is new afterwards.
        """
        if self._trimmer.started:
            held = self._leveller.feed(self._trimmer.finish())
            wanted = max(0, pause - self._trimmer.trailing)
            end = fade_out(held[:wanted]) if held.size else ring_out(self._latest, wanted)
            self._lay(end, silent=False)
            self._lay(np.zeros(wanted - end.size, dtype=np.float32), silent=True)
        self._trimmer = Trimmer()
        return self._encode(most)

    def rest(self, most: int) -> list[Packet]:
        """More packets of the silence laid down; none when all are out."""
        return self._encode(most)

    def finish(self) -> list[Packet]:
        """End the turn: silence until the last sample is out of every decoder."""
        if not self.samples:
            return []
        missing = self._encoder.pre_skip
        missing += -(self._pending_samples + missing) % self._encoder.grain
        rest = np.concatenate((*self._pending, np.zeros(missing, dtype=np.float32)))
        self._pending, self._pending_samples = [], 0
        frame = self._encoder.frame_samples
        return [
            self._packet(rest[at : at + frame], self.samples if at + frame >= rest.size else None)
            for at in range(0, rest.size, frame)
        ]

    def _lay(self, pcm: Pcm, *, silent: bool) -> None:
        if pcm.size:
            self._pending.append(pcm)
            self._pending_samples += pcm.size
            self.samples += pcm.size
            self._latest = np.concatenate((self._latest, pcm[-FADE:]))[-FADE:]
            if not silent:
                self._silent_from = self.samples

    def _encode(self, most: int | None = None) -> list[Packet]:
        frame = self._encoder.frame_samples
        if self._pending_samples < frame:
            return []
        audio = np.concatenate(self._pending) if len(self._pending) > 1 else self._pending[0]
        whole = audio.size - audio.size % frame
        if most is not None:
            whole = min(whole, max(frame, most - most % frame))
        packets = [self._packet(audio[at : at + frame]) for at in range(0, whole, frame)]
        self._pending, self._pending_samples = [audio[whole:]], audio.size - whole
        return packets

    def _packet(self, pcm: Pcm, end: int | None = None) -> Packet:
        position = self._encoded
        self._encoded += pcm.size
        # A decoder gives this packet's speech up to pre_skip samples later, in the next one.
        pause = position >= self._silent_from + self._encoder.pre_skip
        return Packet(self._encoder.encode(pcm, end), position, pcm.size, pause)
