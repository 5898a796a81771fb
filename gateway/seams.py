"""No clicks where pieces meet: what is cut fades, what broke off rings out.

A step in the waveform is a click, however soft. Pure functions of samples.
"""

from __future__ import annotations

import numpy as np

from engine.api import AUDIBLE, SAMPLE_RATE, Pcm

FADE = SAMPLE_RATE * 5 // 1000
"""Samples a fade takes at most: too short to be heard as one, too long to click."""


def _falling(samples: int) -> Pcm:
    """Raised cosine from 1 to 0, both exclusive."""
    phase = np.arange(1, samples + 1) / (samples + 1)
    ramp: Pcm = (0.5 + 0.5 * np.cos(np.pi * phase)).astype(np.float32)
    return ramp


def fade_in(pcm: Pcm, samples: int) -> Pcm:
    """`pcm` with its first `samples` rising from silence, at most `FADE` of them."""
    count = min(samples, FADE, pcm.size)
    if not count:
        return pcm
    return np.concatenate((pcm[:count] * _falling(count)[::-1], pcm[count:]))


def fade_out(pcm: Pcm) -> Pcm:
    """`pcm` with its last `FADE` samples, or all of it, falling into silence."""
    count = min(FADE, pcm.size)
    if not count:
        return pcm
    return np.concatenate((pcm[:-count], pcm[-count:] * _falling(count)))


def ring_out(last: Pcm, most: int) -> Pcm:
    """What follows audio that broke off while it was loud: its end mirrored, falling.

    `last`: the latest samples, newest last. At most `most` samples; none where the end was silent.
    """
    count = min(FADE, last.size, most)
    if not count or abs(float(last[-1])) <= AUDIBLE:
        return last[:0]
    mirrored: Pcm = last[::-1][:count] * _falling(count)
    return mirrored
