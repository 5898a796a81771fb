"""Permissively licensed speech synthesisers that the voice learns from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

SPEEDS = (0.8, 0.9, 1.0, 1.12, 1.25)
"""Speaking rates the language model learns as speed tokens."""
SPEED_SHARES = (0.08, 0.17, 0.5, 0.17, 0.08)

LATE_SAMPLES = 1440
"""How much later than it is heard a symbol begins by Kokoro's durations, and by those of a model
distilled from it: 60 ms, measured where hiss begins and ends beside vowels."""


class Speech(NamedTuple):
    """24 kHz mono in [-1, 1], silent or empty when the teacher fails, and where in it the symbols
    of the phonemes meet, in samples: where the first begins, then where each ends."""

    wave: npt.NDArray[np.float32]
    edges: list[int]


class Teacher(Protocol):
    """A synthesiser that takes phonemes in the voice's own alphabet."""

    @property
    def voices(self) -> tuple[str, ...]: ...

    @property
    def languages(self) -> tuple[str, ...]: ...

    def speak(self, phonemes: str, voice: str, speed: float, seed: int) -> Speech:
        """May be called by several threads at once."""
        ...


def load(name: str, device: str = "cpu") -> Teacher:
    """`hibari` or `kokoro`. Raises `ValueError` for others, `ImportError` without its package."""
    if name == "hibari":
        from training.teachers.hibari import HibariTeacher

        return HibariTeacher()
    if name == "kokoro":
        from training.teachers.kokoro import KokoroTeacher

        return KokoroTeacher(device)
    raise ValueError(f"no teacher is called {name!r}: hibari, kokoro")


def symbol_edges(
    phonemes: str, known: Mapping[str, int], lengths: Sequence[float], samples: int
) -> list[int]:
    """`Speech.edges`, given how long the padding before, each known symbol and the padding after
    last, on any scale, and the samples of the whole. A symbol the teacher does not know has no
    length."""
    ends = np.cumsum(lengths) * (samples / max(1e-9, float(np.sum(lengths))))
    at = np.cumsum([0, *(symbol in known for symbol in phonemes)])
    return [max(0, round(float(end)) - LATE_SAMPLES) for end in ends[at]]
