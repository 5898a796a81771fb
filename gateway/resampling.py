"""From the engine's 24 kHz to another rate, frame by frame.

A linear-phase low-pass (Kaiser window, 70 dB) in polyphase form: every output sample depends on a
fixed stretch of input, so nothing depends on how the audio is cut, and the delay is exact.
"""

from __future__ import annotations

from functools import cache
from math import gcd

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from engine.api import SAMPLE_RATE, Pcm

_DELAYS = {8_000: 72, 12_000: 48, 16_000: 48, 48_000: 24}
"""Samples at 24 kHz, by rate: half the filter, 1 to 3 ms. The narrower the band, the longer."""
RATES = tuple(sorted((*_DELAYS, SAMPLE_RATE)))
_BETA = 6.76
"""Of the Kaiser window: 70 dB of stop band."""


@cache
def _phases(rate: int) -> list[Pcm]:
    """The filter's taps, newest sample last, for each position of an output between two inputs."""
    up = rate // gcd(rate, SAMPLE_RATE)
    half = _DELAYS[rate] * up
    at = np.arange(-half, half + 1)
    # The transition band lies around the lower Nyquist frequency, three quarters of it below.
    width = 70.0 / (14.36 * (2 * half + 1))
    cutoff = min(rate, SAMPLE_RATE) / (2.0 * SAMPLE_RATE * up) - width / 4.0
    taps = np.sinc(2.0 * cutoff * at) * np.kaiser(at.size, _BETA)
    taps *= up / taps.sum()
    padded = np.concatenate((taps, np.zeros(-taps.size % up)))
    return [padded[phase::up][::-1].astype(np.float32) for phase in range(up)]


class Resampler:
    """`feed` gives exactly `rate / 24000` samples for each one fed, `delay` samples late.

    `grain`: samples fed are multiples of it. Raises `KeyError` for a rate not in `RATES`.
    """

    def __init__(self, rate: int) -> None:
        common = gcd(rate, SAMPLE_RATE)
        self._up, self.grain = rate // common, SAMPLE_RATE // common
        self.delay = _DELAYS[rate]
        """At 24 kHz: a multiple of `grain`."""
        self._phases = _phases(rate)
        self._past: Pcm = np.zeros(max(map(len, self._phases)) - 1, dtype=np.float32)

    def feed(self, pcm: Pcm) -> Pcm:
        if pcm.size % self.grain:
            raise ValueError(f"{pcm.size} samples are no multiple of {self.grain}")
        audio = np.concatenate((self._past, pcm), dtype=np.float32)
        out = np.empty(pcm.size * self._up // self.grain, dtype=np.float32)
        wanted = np.arange(out.size) * self.grain
        newest = wanted // self._up
        for phase, taps in enumerate(self._phases):
            here = wanted % self._up == phase
            windows = sliding_window_view(audio, taps.size)
            first = self._past.size - taps.size + 1
            out[here] = windows[first + newest[here]] @ taps
        self._past = audio[pcm.size :]
        return out
