"""Permissively licensed speech synthesisers that the voice learns from."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

SPEEDS = (0.8, 0.9, 1.0, 1.12, 1.25)
"""Speaking rates the language model learns as speed tokens."""
SPEED_SHARES = (0.08, 0.17, 0.5, 0.17, 0.08)


class Teacher(Protocol):
    """A synthesiser that takes phonemes in the voice's own alphabet."""

    @property
    def voices(self) -> tuple[str, ...]: ...

    @property
    def languages(self) -> tuple[str, ...]: ...

    def speak(self, phonemes: str, voice: str, speed: float, seed: int) -> npt.NDArray[np.float32]:
        """24 kHz mono in [-1, 1]; may be silent or empty when the teacher fails."""
        ...


def load(name: str) -> Teacher:
    """`hibari` or `kokoro`. Raises `ValueError` for others, `ImportError` without its package."""
    if name == "hibari":
        from training.teachers.hibari import HibariTeacher

        return HibariTeacher()
    if name == "kokoro":
        from training.teachers.kokoro import KokoroTeacher

        return KokoroTeacher()
    raise ValueError(f"no teacher is called {name!r}: hibari, kokoro")
