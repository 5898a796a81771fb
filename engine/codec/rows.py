"""Ragged batches as packed rows.

The windows of all streams are laid end to end in one (rows, channels) matrix, so that every
pointwise layer is one matrix product without padding. Only convolutions look across rows; for them
`Neighbours` puts each window between its context: what was kept from the window before on the left,
zeros where nothing is known yet on the right.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Counts = npt.NDArray[np.int64]


def ranges(counts: Counts) -> Counts:
    """0..counts[0]-1, 0..counts[1]-1, .. end to end."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total, dtype=np.int64) - np.repeat(ends - counts, counts)


class Rows:
    """Where the windows of a batch lie in the packed matrix, at one frame rate.

    counts: rows of each window. settled: how many of them are final; the next window starts after
    them.
    """

    def __init__(self, counts: Counts, settled: Counts, device: torch.device) -> None:
        self.counts = counts
        self.settled = settled
        self.device = device
        self.windows = len(counts)
        self.total = int(counts.sum())
        self.starts = np.cumsum(counts) - counts
        self._neighbours: dict[tuple[int, int], Neighbours] = {}

    @cached_property
    def even(self) -> bool:
        """All windows have the same rows, as many of them final: no row needs to be looked up."""
        return bool(
            (self.counts == self.counts[0]).all() and (self.settled == self.settled[0]).all()
        )

    def index(self, indices: Counts) -> Tensor:
        """Row indices as a tensor on the device of the rows."""
        tensor = torch.from_numpy(indices)
        if self.device.type == "cpu":
            return tensor
        return tensor.pin_memory().to(self.device, non_blocking=True)

    def neighbours(self, left: int, right: int) -> Neighbours:
        """What a convolution with that much context needs to know."""
        key = (left, right)
        found = self._neighbours.get(key)
        if found is None:
            found = self._neighbours[key] = Neighbours(self, left, right)
        return found

    def doubled(self) -> Rows:
        """The same windows at twice the frame rate."""
        return Rows(2 * self.counts, 2 * self.settled, self.device)

    @cached_property
    def final(self) -> Tensor | None:
        """(sum of settled,) the final rows, or None when every row is final."""
        if np.array_equal(self.settled, self.counts):
            return None
        return self.index(np.repeat(self.starts, self.settled) + ranges(self.settled))


class Neighbours:
    """Rows with `left` and `right` rows of context around each window."""

    def __init__(self, rows: Rows, left: int, right: int) -> None:
        self._rows = rows
        self.left = left
        self.right = right

    def spread(self, x: Tensor, kept: Tensor) -> Tensor:
        """Rows (total, channels) and kept context (windows, left, channels), in order.

        The result is (windows, left + count + right, channels) when windows are even; otherwise
        (1, all of that end to end, channels), and what a convolution gives where two windows meet
        is left out by `centred`.
        """
        rows, channels = self._rows, x.shape[-1]
        if rows.even:
            parts = [kept, x.view(rows.windows, -1, channels)]
            if self.right:
                parts.append(x.new_zeros(1, 1, channels).expand(rows.windows, self.right, channels))
            return torch.cat(parts, 1)
        source = [x, kept.reshape(-1, channels)]
        if self.right:
            source.append(x.new_zeros(1, channels))
        return torch.cat(source).index_select(0, self._placed)[None]

    def centred(self, results: Tensor) -> Tensor:
        """Results of a convolution over `spread` that reaches left and right -> (total, ..)."""
        if self._rows.even:
            return results.flatten(0, 1)
        return results[0].index_select(0, self._centres)

    def taps(self, spread: Tensor) -> Tensor:
        """Rows under each tap of a dense kernel, (total, kernel * channels)."""
        taps = spread.unfold(1, self.left + self.right + 1, 1).transpose(2, 3)
        return self.centred(taps).flatten(1)

    def keep(self, spread: Tensor) -> Tensor:
        """(windows, left * channels) context of the next windows: the rows before their first."""
        rows = self._rows
        if rows.even:
            first = int(rows.settled[0])
            return spread[:, first : first + self.left].flatten(1)
        return spread[0].index_select(0, self._next).view(rows.windows, -1)

    @cached_property
    def _widths(self) -> Counts:
        return self._rows.counts + self.left + self.right

    @cached_property
    def _placed(self) -> Tensor:
        """Where each row of `spread` is in the rows, the kept context and one row of zeros."""
        rows = self._rows
        window = np.repeat(np.arange(rows.windows), self._widths)
        position = ranges(self._widths) - self.left
        known = rows.starts[window] + position
        kept = rows.total + window * self.left + self.left + position
        zeros = rows.total + rows.windows * self.left
        inside = np.where(position < rows.counts[window], known, zeros)
        return rows.index(np.where(position < 0, kept, inside))

    @cached_property
    def _starts(self) -> Counts:
        """Where each window with its context starts in `spread`."""
        return np.cumsum(self._widths) - self._widths

    @cached_property
    def _centres(self) -> Tensor:
        counts = self._rows.counts
        return self._rows.index(np.repeat(self._starts, counts) + ranges(counts))

    @cached_property
    def _next(self) -> Tensor:
        first = np.repeat(self._starts + self._rows.settled, self.left)
        return self._rows.index(first + np.tile(np.arange(self.left), self._rows.windows))


class Context:
    """What convolutions keep between two windows of a stream, for a whole batch.

    `rows` is (windows, width): each convolution takes its share in the order of the forward pass
    and gives its successor. Fresh streams have zeros.
    """

    def __init__(self, rows: Tensor) -> None:
        self._rows = rows
        self._at = 0
        self._next: list[Tensor] = []

    def take(self, left: int, channels: int) -> Tensor:
        """(windows, left, channels) kept rows of the next convolution."""
        width = left * channels
        share = self._rows[:, self._at : self._at + width]
        self._at += width
        return share.view(-1, left, channels)

    def keep(self, rows: Tensor) -> None:
        """(windows, left * channels) rows for the convolution that has just taken its share."""
        self._next.append(rows)

    def successor(self) -> Tensor:
        """(windows, width) the context of the next windows."""
        return torch.cat(self._next, 1)
