"""Judges of what clients get."""

from __future__ import annotations

import io

import av
import numpy as np


def decoded(data: bytes, format: str | None = None) -> tuple[np.ndarray, int]:
    """Samples and rate of an audio file, by an independent decoder."""
    with av.open(io.BytesIO(data), format=format) as container:
        frames = list(container.decode(audio=0))
    rate = frames[0].sample_rate
    parts = [frame.to_ndarray().ravel() for frame in frames]
    samples = np.concatenate(parts)
    if samples.dtype == np.int16:
        samples = samples / 32768.0
    return samples.astype(np.float32), rate
