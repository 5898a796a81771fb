"""The small network that hears in the codes which phoneme each frame says.

Residual convolutions over time with a few frames of look-ahead, in numpy: a piece has too few
frames for anything else to pay. Trained by `training.aligner`, which has the same in PyTorch.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

KERNEL = 7
AHEAD = (1, 1, 1, 1, 0)
"""Frames each block looks ahead."""
EPSILON = 1e-6

Array = npt.NDArray[np.float32]
Codes = npt.NDArray[np.int16]


class _Block(NamedTuple):
    taps: Array
    bias: Array
    gain: Array
    widen: Array
    widen_bias: Array
    narrow: Array
    narrow_bias: Array


class AlignmentNetwork:
    """Codes (frames, sampled codebooks) -> log-probabilities (frames, classes)."""

    def __init__(self, tensors: Mapping[str, Array]) -> None:
        """tensors: by their names in the file; see `training.aligner.AlignerNet`."""
        weights = {name: np.asarray(value, np.float32) for name, value in tensors.items()}
        self._embed = weights["embed"]
        self._bias = weights["embed_bias"]
        self._blocks = [
            _Block(*(weights[f"blocks.{i}.{part}"] for part in _Block._fields))
            for i in range(len(AHEAD))
        ]
        self._out, self._out_bias = weights["out"], weights["out_bias"]

    @classmethod
    def load(cls, path: Path) -> AlignmentNetwork:
        from safetensors.numpy import load_file

        return cls(load_file(path))

    @property
    def classes(self) -> int:
        return len(self._out_bias)

    @property
    def look_ahead(self) -> int:
        return sum(AHEAD)

    @property
    def look_back(self) -> int:
        return len(AHEAD) * (KERNEL - 1) - sum(AHEAD)

    def __call__(self, codes: Codes) -> Array:
        frames = len(codes)
        x = self._bias + sum(
            self._embed[book][codes[:, book]] for book in range(self._embed.shape[0])
        )
        for block, ahead in zip(self._blocks, AHEAD, strict=True):
            padded = np.pad(x, ((KERNEL - 1 - ahead, ahead), (0, 0)))
            y = block.bias + sum(
                padded[tap : tap + frames] * block.taps[tap] for tap in range(KERNEL)
            )
            y *= block.gain / np.sqrt((y * y).mean(1, keepdims=True) + EPSILON)
            wide = y @ block.widen
            wide += block.widen_bias
            np.maximum(wide, 0, out=wide)
            x = x + (wide @ block.narrow + block.narrow_bias)
        scores: Array = x @ self._out + self._out_bias
        scores -= scores.max(1, keepdims=True)
        scores -= np.log(np.exp(scores).sum(1, keepdims=True))
        return scores


class StreamingNetwork:
    """The same over frames that come in one lot after the other: a frame's scores once the frames
    after it that it depends on are there."""

    def __init__(self, network: AlignmentNetwork) -> None:
        self._network = network
        self._codes: Codes | None = None
        self._given = 0

    def push(self, codes: Codes, *, last: bool) -> Array:
        """Scores (n, classes) of the frames that are final now."""
        known = codes if self._codes is None else np.concatenate([self._codes, codes])
        network, given = self._network, self._given
        final = len(known) if last else max(given, len(known) - network.look_ahead)
        if final == given:
            scores = np.zeros((0, network.classes), np.float32)
        else:
            scores = network(known)[given:final]
        # What has been scored is only context from now on.
        forgotten = max(0, final - network.look_back)
        self._codes, self._given = known[forgotten:], final - forgotten
        return scores
