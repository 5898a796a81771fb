"""Codec weights and inputs from a seed, for parity tests and measurements.

Every tensor depends on (seed, name, shape) and nothing else, so the reference implementation and
this one are given the same numbers without a file. Needs numpy alone.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

Shape = tuple[int, ...]
Array = npt.NDArray[np.float32]


def _generator(seed: int, name: str) -> np.random.Generator:
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def random_tensor(name: str, shape: Shape, seed: int) -> Array:
    """Weights of a size that keeps activations near 1: matrices 1 / sqrt(fan in), biases 0.1, norms
    around 1, `coef` in 0.5..1.5, other vectors (the blocks' scales) around 0.3."""
    drawn = _generator(seed, name).standard_normal(shape)
    last = name.rsplit(".", 1)[-1]
    if name == "coef":
        value = 0.5 + (np.arctan(drawn) / np.pi + 0.5)
    elif last == "bias":
        value = 0.1 * drawn
    elif len(shape) > 1:
        value = drawn / math.sqrt(math.prod(shape[1:]))
    elif "norm" in name or ".n0" in name or ".n1" in name:
        value = 1 + 0.1 * drawn
    else:
        value = 0.3 * (1 + 0.2 * drawn)
    return value.astype(np.float32)


def random_state(shapes: Mapping[str, Shape], seed: int) -> dict[str, Array]:
    """Name -> weights for every name and shape of a checkpoint file."""
    return {name: random_tensor(name, shape, seed) for name, shape in shapes.items()}


def dull(vocos: Mapping[str, Array], corner_hertz: float = 400.0) -> dict[str, Array]:
    """The same vocoder with a spectrum that falls by 12 dB an octave, as a voice's does roughly.

    Random weights alone sound like white noise, in which no click would stand out.
    """
    bias = vocos["head.out.bias"].copy()
    bins = len(bias) // 2
    hertz = np.linspace(0, 12_000, bins)
    bias[:bins] -= 2 * np.log1p(hertz / corner_hertz)
    return dict(vocos) | {"head.out.bias": bias.astype(np.float32)}


def random_hidden(frames: int, width: int, seed: int) -> Array:
    """(frames, width) hidden states that drift slowly, as a language model's do."""
    steps = _generator(seed, "hidden").standard_normal((frames, width))
    for index in range(1, frames):
        steps[index] = 0.8 * steps[index - 1] + 0.6 * steps[index]
    return steps.astype(np.float32)


def random_codes(frames: int, codebooks: int, size: int, seed: int) -> npt.NDArray[np.int16]:
    """(frames, codebooks) codes in 0..size-1."""
    return _generator(seed, "codes").integers(0, size, (frames, codebooks)).astype(np.int16)


def random_pcm(samples: int, seed: int, sample_rate: int = 24_000) -> Array:
    """Gliding harmonics in noise, peak below 1."""
    noise = 0.02 * _generator(seed, "pcm").standard_normal(samples)
    time = np.arange(samples) / sample_rate
    phase = 2 * np.pi * (120 * time + 40 * np.sin(3 * time))
    harmonics = np.arange(1, 12)[:, None]
    voice = (np.sin(harmonics * phase) / harmonics).sum(0)
    pcm: Array = (0.2 * voice * (0.6 + 0.4 * np.sin(9 * time)) + noise).astype(np.float32)
    return pcm
