"""hibari-tts (Apache-2.0): one English voice, distilled from Kokoro-82M's af_heart."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hibari import Hibari


class HibariTeacher:
    voices = ("heart",)
    languages = ("en",)

    def __init__(self) -> None:
        self._model = Hibari(threads=1)

    def speak(self, phonemes: str, voice: str, speed: float, seed: int) -> npt.NDArray[np.float32]:
        return np.asarray(self._model.from_phonemes(phonemes, speed, seed=seed), np.float32)
