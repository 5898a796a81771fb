"""Where speech begins and ends in what the voice learns from.

Every utterance begins with the same frame, given to the model and never drawn: the lead. Speech
sets in inside that frame, so that the first drawn frame can be heard; the windows of the inverse
STFT around the second frame reach back over the second half of the first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

AUDIBLE = 0.01
"""Amplitude at which speech counts as begun: -40 dBFS."""
BEFORE_SAMPLES = 240
"""Kept before it: 10 ms at 24 kHz."""
AFTER_SAMPLES = 960
FADE_SAMPLES = 120
"""The cut is faded in over these samples."""
LEAD = (34, 312, 415, 312)
"""Codes of the lead, one a codebook: silence."""
LONGEST = 15.5 * 24_000
SHORTEST = 0.1 * 24_000


class Trimmed(NamedTuple):
    """What is left of a wave, and how many samples were cut before it (added, if negative)."""

    wave: npt.NDArray[np.float32]
    before: int


def trim(wave: npt.NDArray[np.float32]) -> Trimmed | None:
    """Cut the silence around the speech (samples,); None when nothing fit to learn from is left."""
    audible = np.flatnonzero(np.abs(wave) > AUDIBLE)
    if len(audible) == 0 or not np.isfinite(wave).all():
        return None
    before = int(audible[0]) - BEFORE_SAMPLES
    missing = max(0, -before)
    cut = np.pad(wave, (missing, 0))[before + missing :]
    cut = cut[: int(audible[-1]) - before + AFTER_SAMPLES].copy()
    cut[:FADE_SAMPLES] *= np.linspace(0, 1, FADE_SAMPLES, dtype=np.float32)
    return Trimmed(cut, before) if SHORTEST <= len(cut) <= LONGEST else None
