"""Samples at the rates of compact discs, which the wire does not have."""

from __future__ import annotations

from functools import cache
from math import gcd

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from engine.api import SAMPLE_RATE, Pcm

_HALF = 32
"""Samples of the filter on either side, at 24 kHz."""
_BETA = 6.76
"""Of the Kaiser window: 70 dB of stop band, as in `gateway.resampling`."""
_PASS = 0.94
"""Of the lower Nyquist frequency, where the band ends."""


@cache
def _taps(rate: int) -> Pcm:
    """The filter for each position of an output between two inputs: positions x samples."""
    up = rate // gcd(rate, SAMPLE_RATE)
    cutoff = _PASS * min(rate, SAMPLE_RATE) / SAMPLE_RATE
    # Samples before and after the output, which lies between two in the middle.
    at = np.arange(-_HALF + 1, _HALF + 1) - np.arange(up)[:, None] / up
    window = np.i0(_BETA * np.sqrt(np.clip(1.0 - (at / _HALF) ** 2, 0.0, 1.0))) / np.i0(_BETA)
    taps = cutoff * np.sinc(cutoff * at) * window
    table: Pcm = (taps / taps.sum(axis=1, keepdims=True)).astype(np.float32)
    return table


class ResampledPcm:
    """A `Codec` from 24 kHz to `rate`, both 16-bit little-endian. It adds no delay: what comes out
    lags by the filter's half, and `finish` brings the rest."""

    def __init__(self, rate: int) -> None:
        common = gcd(rate, SAMPLE_RATE)
        self._up, self._down = rate // common, SAMPLE_RATE // common
        self._table = _taps(rate)
        self._held: Pcm = np.zeros(_HALF - 1, dtype=np.float32)
        """From `_HALF` - 1 samples before input number `_base` on."""
        self._base = 0
        self._made = 0
        self._fed = 0

    def feed(self, samples: bytes) -> bytes:
        pcm = np.frombuffer(samples, dtype="<i2").astype(np.float32)
        self._fed += pcm.size
        return self._make(pcm, self._fed * self._up)

    def finish(self) -> bytes:
        return self._make(np.zeros(_HALF, dtype=np.float32), self._fed * self._up)

    def _make(self, pcm: Pcm, limit: int) -> bytes:
        """`limit`: the end of the input, in parts of `_up` of a sample."""
        self._held = np.concatenate((self._held, pcm))
        windows = self._held.size - 2 * _HALF + 1
        if windows < 1:
            return b""
        reachable = min((self._base + windows) * self._up, limit)
        count = max(0, -(-reachable // self._down) - self._made)
        at = (self._made + np.arange(count)) * self._down
        held = sliding_window_view(self._held, 2 * _HALF)[at // self._up - self._base]
        out = np.einsum("ij,ij->i", held, self._table[at % self._up])
        self._made += count
        used = min(windows, self._made * self._down // self._up - self._base)
        self._held = self._held[used:]
        self._base += used
        samples: bytes = np.rint(np.clip(out, -32_768, 32_767)).astype("<i2").tobytes()
        return samples

    def close(self) -> None:
        pass
