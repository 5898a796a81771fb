"""What an encoder of one turn's audio is, and those that need no library: PCM and G.711."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import numpy as np

from engine.api import SAMPLE_RATE, Pcm
from gateway.g711 import Samples, a_law, mu_law
from gateway.protocol import AudioKind
from gateway.resampling import Resampler


class Encoder(Protocol):
    """Turns consecutive frames of one turn into packets. Samples count at 24 kHz."""

    kind: AudioKind
    frame_samples: int
    pre_skip: int
    """Samples a decoder gives before the first sample that was encoded."""
    grain: int
    """Every packet holds a multiple of so many samples."""

    def encode(self, pcm: Pcm, end: int | None = None) -> bytes:
        """One packet of `pcm`: at most `frame_samples` of float32.

        `end` comes with the last packet of a turn: the turn's samples without pre-skip and padding.
        """
        ...


class _LinearEncoder:
    """Samples one by one, at `rate`. Resampling delays them by `pre_skip`."""

    def __init__(self, frame_ms: int, rate: int) -> None:
        self.frame_samples = SAMPLE_RATE * frame_ms // 1000
        self._resampler = None if rate == SAMPLE_RATE else Resampler(rate)
        self.pre_skip = 0 if self._resampler is None else self._resampler.delay
        self.grain = 1 if self._resampler is None else self._resampler.grain

    def _samples(self, pcm: Pcm) -> Samples:
        if self._resampler is not None:
            pcm = self._resampler.feed(pcm)
        samples: Samples = np.rint(np.clip(pcm, -1.0, 1.0) * 32767.0).astype("<i2")
        return samples


class PcmEncoder(_LinearEncoder):
    """Little-endian 16-bit samples."""

    kind = AudioKind.PCM_S16LE

    def __init__(self, frame_ms: int, rate: int = SAMPLE_RATE) -> None:
        super().__init__(frame_ms, rate)

    def encode(self, pcm: Pcm, end: int | None = None) -> bytes:
        return self._samples(pcm).tobytes()


_LAWS: dict[AudioKind, Callable[[Samples], bytes]] = {
    AudioKind.MULAW: mu_law,
    AudioKind.ALAW: a_law,
}


class G711Encoder(_LinearEncoder):
    """Telephony: 8 kHz, a byte a sample."""

    RATE = 8_000

    def __init__(self, kind: AudioKind, frame_ms: int) -> None:
        super().__init__(frame_ms, self.RATE)
        self.kind = kind
        self._law = _LAWS[kind]

    def encode(self, pcm: Pcm, end: int | None = None) -> bytes:
        return self._law(self._samples(pcm))


class TimedEncoder:
    """An encoder that tells how much CPU time each packet took, in seconds."""

    def __init__(self, encoder: Encoder, spent: Callable[[float], None]) -> None:
        self.kind, self.frame_samples = encoder.kind, encoder.frame_samples
        self.pre_skip, self.grain = encoder.pre_skip, encoder.grain
        self._encoder, self._spent = encoder, spent

    def encode(self, pcm: Pcm, end: int | None = None) -> bytes:
        began = time.thread_time()
        payload = self._encoder.encode(pcm, end)
        self._spent(time.thread_time() - began)
        return payload
