"""Monotonic alignment as frames come in: which symbol of a known sequence is said when.

The best path through a trellis of symbols and frames (Viterbi): at every frame it stays, goes on to
the next symbol or, at a price, leaves one out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

LEFT_OUT = -4.0
"""Log-probability of leaving a symbol out."""

Scores = npt.NDArray[np.float32]


class MonotonicPath:
    """The best path of one sequence so far.

    symbols: classes in the order they are said.
    """

    def __init__(self, symbols: Sequence[int]) -> None:
        if not len(symbols):
            raise ValueError("there is nothing to align")
        self._symbols = np.asarray(symbols, np.intp)
        self._best = np.full(len(symbols) + 2, -np.inf, np.float32)
        self._steps: list[npt.NDArray[np.int8]] = []

    @property
    def frames(self) -> int:
        return len(self._steps)

    def push(self, scores: Scores) -> None:
        """Log-probabilities (n, classes) of the next frames."""
        best = self._best
        for row in scores[:, self._symbols]:
            if not self._steps:
                best[2:] = -np.inf
                best[2], best[3:4] = 0.0, LEFT_OUT
                step = np.zeros(len(row), np.int8)
                best[2:] += row
            else:
                moves = np.stack([best[2:], best[1:-1], best[:-2] + np.float32(LEFT_OUT)])
                step = moves.argmax(0).astype(np.int8)
                best[2:] = moves.max(0) + row
            self._steps.append(step)

    def edges(self, *, ended: bool) -> npt.NDArray[np.int64]:
        """Frames (symbols + 1,) at which the first symbol begins and each ends.

        Of the likeliest path so far, or, when `ended`, of the likeliest that says everything.
        Symbols that are not said yet end at the last frame.
        """
        count = len(self._symbols)
        edges = np.full(count + 1, self.frames, np.int64)
        edges[0] = 0
        if not self._steps:
            return edges
        symbol = count - 1 if ended else int(self._best[2:].argmax())
        for frame in range(self.frames - 1, -1, -1):
            step = int(self._steps[frame][symbol])
            for left in range(symbol - step, symbol):
                edges[left + 1] = frame
            symbol -= step
        edges[: symbol + 1] = 0
        return edges
