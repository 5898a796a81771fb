"""Notices a piece that does not find its end: too long, silent for too long, or going round.

Pure: audio goes in as it is made, a verdict comes out, whatever chunks the audio was cut into.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from engine.api import AUDIBLE, SAMPLE_RATE, Pcm
from gateway.characters import expected_seconds

Verdict = Literal["length", "silence", "repetition"]

_MOST_TIMES, _MOST_MORE = 3.0, 4.0
"""A piece may take so many times what its text should, and so many seconds more."""
_SILENCE_SECONDS = 2.5
"""No voice rests this long within a piece."""
_SUSPECT_TIMES, _SUSPECT_MORE = 1.25, 1.0
"""Repetition counts only beyond this: a text may well say the same thing again and again."""
_FRAME = SAMPLE_RATE * 20 // 1000
_BANDS = 16
_HISTORY = 230
"""Frames: 4.6 s, two rounds of the longest and a third to compare with."""
_LOOK = 10 * _FRAME
"""Samples between two looks for repetition, which take a millisecond each."""
_LAGS = range(8, 76)
"""Frames a round may take: 0.16 to 1.5 s."""
_LEAST_WINDOW = 50
_SAME = 0.8
"""Correlation of two rounds. Speech of the embedded voice has at most 0.51."""
_DRONE_DB = 1.0
"""Change from frame to frame of a sound that is stuck."""

Features = npt.NDArray[np.float64]


def _edges() -> npt.NDArray[np.int64]:
    """Bins of the spectrum at which bands begin: narrow below, wide above, as ears have it."""
    hertz = np.geomspace(150.0, 8_000.0, _BANDS + 1)
    return np.maximum.accumulate(np.rint(hertz * _FRAME / SAMPLE_RATE).astype(np.int64))


_EDGES = _edges() + np.arange(_BANDS + 1) // 4
_WINDOW = np.hanning(_FRAME)


def features(frames: Pcm) -> Features:
    """(n, 480) samples to (n, 16) dB of bands, floored at -70."""
    spectrum = np.abs(np.fft.rfft(frames * _WINDOW, axis=1)) ** 2
    bands = np.add.reduceat(spectrum, _EDGES[:-1], axis=1) / _FRAME**2
    decibels: Features = 10.0 * np.log10(bands + 1e-7)
    return decibels


def sameness(history: Features) -> float:
    """How well the latest sound fits what came one round before, over all lengths of a round: the
    greatest correlation; 1 of a sound that is stuck."""
    if len(history) < _LEAST_WINDOW + _LAGS[0]:
        return 0.0
    recent = history[-_LEAST_WINDOW:]
    if np.abs(np.diff(recent, axis=0)).mean() < _DRONE_DB:
        return 1.0
    best = 0.0
    for lag in _LAGS:
        window = max(_LEAST_WINDOW, 2 * lag)
        if window + lag > len(history):
            break
        now, before = history[-window:], history[-window - lag : -lag]
        centre = history[-window - lag :].mean(axis=0)
        one, other = (now - centre).ravel(), (before - centre).ravel()
        norm = float(np.sqrt(np.dot(one, one) * np.dot(other, other)))
        best = max(best, float(np.dot(one, other)) / norm if norm else 0.0)
    return best


class Guard(Protocol):
    """Watches one piece while it is made."""

    def feed(self, pcm: Pcm) -> Verdict | None:
        """Why the piece should end here, if it should."""
        ...


GuardMaker = Callable[[str, float], Guard]
"""From the text of a piece and its speed."""


class RunawayGuard:
    """Feed a piece's audio until a verdict comes; after that there is no other."""

    def __init__(self, text: str, speed: float) -> None:
        seconds = expected_seconds(text, speed)
        self._most = int((_MOST_TIMES * seconds + _MOST_MORE) * SAMPLE_RATE)
        self._suspect = int((_SUSPECT_TIMES * seconds + _SUSPECT_MORE) * SAMPLE_RATE)
        self._samples = 0
        self._silent = 0
        self._latest: Pcm = np.zeros(0, dtype=np.float32)

    def feed(self, pcm: Pcm) -> Verdict | None:
        while pcm.size:
            room = _LOOK - self._samples % _LOOK
            verdict = self._step(pcm[:room])
            if verdict is not None:
                return verdict
            pcm = pcm[room:]
        return None

    def _step(self, pcm: Pcm) -> Verdict | None:
        self._samples += pcm.size
        if self._samples > self._most:
            return "length"
        loud = np.flatnonzero(np.abs(pcm) > AUDIBLE)
        self._silent = pcm.size - 1 - int(loud[-1]) if loud.size else self._silent + pcm.size
        if self._silent > _SILENCE_SECONDS * SAMPLE_RATE:
            return "silence"
        self._latest = np.concatenate((self._latest, pcm))[-_HISTORY * _FRAME :]
        if self._samples % _LOOK or self._samples <= self._suspect:
            return None
        whole = self._latest[self._latest.size % _FRAME :]
        return "repetition" if sameness(features(whole.reshape(-1, _FRAME))) > _SAME else None
