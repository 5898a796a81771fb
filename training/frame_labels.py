"""Which phoneme each codec frame of a teacher's utterance says."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.align.piece import SILENCE
from engine.api import SAMPLES_PER_FRAME
from engine.frontend.phonemes import Alphabet
from training.audio_store import Utterance

NOT_LABELLED = -100


def frame_labels(utterance: Utterance, alphabet: Alphabet) -> npt.NDArray[np.int16]:
    """Phoneme ids (frames,); `NOT_LABELLED` throughout when the teacher did not tell."""
    frames = -(-utterance.samples // SAMPLES_PER_FRAME)
    ids = alphabet.encode(utterance.phonemes)
    if len(utterance.edges) != len(ids) + 1:
        return np.full(frames, NOT_LABELLED, np.int16)
    middles = (np.arange(frames) + 0.5) * SAMPLES_PER_FRAME
    said = np.searchsorted(utterance.edges, middles, side="right")
    return np.array([SILENCE, *ids, ids[-1]], np.int16)[said]
