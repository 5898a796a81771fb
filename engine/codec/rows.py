"""Ragged batches as packed rows.

The windows of all streams are laid end to end in one (rows, channels) matrix, so that every
pointwise layer is one matrix product without padding. Only convolutions look across rows; for them
`Rows` knows where each window's neighbours are: the context kept from the window before on the
left, zeros where the audio has not begun or nothing is known yet on the right.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Counts = npt.NDArray[np.int64]


def _ranges(counts: Counts) -> Counts:
    """0..counts[0]-1, 0..counts[1]-1, .. end to end."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total, dtype=np.int64) - np.repeat(ends - counts, counts)


class Neighbours:
    """Row indices of one kind of convolution (`left`, `right` rows of context).

    They point into `torch.cat([rows, kept, zeros])`: the packed rows, `left` kept rows a window,
    and one row of zeros (only if `right`).
    """

    def __init__(self, rows: Rows, left: int, right: int) -> None:
        self._rows = rows
        self.left = left
        self.right = right

    def _locate(self, window: Counts, position: Counts) -> Counts:
        """Index of the row at `position` (negative: kept context) of `window`."""
        rows = self._rows
        known = rows.starts[window] + position
        kept = rows.total + window * self.left + self.left + position
        zeros = rows.total + len(rows.counts) * self.left
        inside = np.where(position < rows.counts[window], known, zeros)
        return np.where(position < 0, kept, inside)

    @cached_property
    def spread(self) -> Tensor:
        """(sum of left + count + right,) rows with their context, window after window."""
        counts = self._rows.counts
        width = counts + self.left + self.right
        window = np.repeat(np.arange(len(counts)), width)
        return self._rows.index(self._locate(window, _ranges(width) - self.left))

    @cached_property
    def centres(self) -> Tensor:
        """(total,) where each row's own convolution output lies among the outputs over `spread`."""
        counts = self._rows.counts
        width = counts + self.left + self.right
        starts = np.cumsum(width) - width
        return self._rows.index(np.repeat(starts, counts) + _ranges(counts))

    def taps(self, kernel: int, dilation: int) -> Tensor:
        """(total * kernel,) rows under each tap of the kernel, row after row."""
        rows = self._rows
        window = np.repeat(np.arange(len(rows.counts)), rows.counts)
        offsets = np.arange(kernel) * dilation - self.left
        position = _ranges(rows.counts)[:, None] + offsets
        located = self._locate(np.broadcast_to(window[:, None], position.shape), position)
        return rows.index(located.reshape(-1))

    @cached_property
    def kept(self) -> Tensor:
        """(windows * left,) the rows to keep for the next window: those before its first row."""
        rows = self._rows
        window = np.repeat(np.arange(len(rows.counts)), self.left)
        back = np.tile(np.arange(self.left), len(rows.counts)) - self.left
        return rows.index(self._locate(window, rows.settled[window] + back))


class Rows:
    """Where the windows of a batch lie in the packed matrix, at one frame rate.

    counts: rows of each window. settled: how many of them are final; the next window starts after
    them.
    """

    def __init__(self, counts: Counts, settled: Counts, device: torch.device) -> None:
        self.counts = counts
        self.settled = settled
        self.device = device
        self.total = int(counts.sum())
        self.starts = np.cumsum(counts) - counts
        self._neighbours: dict[tuple[int, int], Neighbours] = {}
        self._taps: dict[tuple[int, int, int, int], Tensor] = {}

    def index(self, indices: Counts) -> Tensor:
        """Row indices as a tensor on the device of the rows."""
        tensor = torch.from_numpy(indices)
        if self.device.type == "cpu":
            return tensor
        return tensor.pin_memory().to(self.device, non_blocking=True)

    def neighbours(self, left: int, right: int) -> Neighbours:
        key = (left, right)
        found = self._neighbours.get(key)
        if found is None:
            found = self._neighbours[key] = Neighbours(self, left, right)
        return found

    def taps(self, left: int, right: int, kernel: int, dilation: int) -> Tensor:
        key = (left, right, kernel, dilation)
        found = self._taps.get(key)
        if found is None:
            found = self._taps[key] = self.neighbours(left, right).taps(kernel, dilation)
        return found

    def doubled(self) -> Rows:
        """The same windows at twice the frame rate."""
        return Rows(2 * self.counts, 2 * self.settled, self.device)

    @cached_property
    def final(self) -> Tensor | None:
        """(sum of settled,) the final rows, or None when every row is final."""
        if np.array_equal(self.settled, self.counts):
            return None
        return self.index(np.repeat(self.starts, self.settled) + _ranges(self.settled))


class Context:
    """What convolutions keep between two windows of a stream, for a whole batch.

    `rows` is (windows, width): each convolution takes its share in the order of the forward pass
    and adds its successor to the next one. Fresh streams have zeros.
    """

    def __init__(self, rows: Tensor) -> None:
        self._rows = rows
        self._at = 0
        self._next: list[Tensor] = []

    def take(self, left: int, channels: int) -> Tensor:
        """(windows * left, channels) kept rows of the next convolution."""
        width = left * channels
        share = self._rows[:, self._at : self._at + width]
        self._at += width
        return share.reshape(-1, channels)

    def keep(self, rows: Tensor) -> None:
        """(windows * left, channels) rows for the convolution that has just taken its share."""
        self._next.append(rows.view(self._rows.shape[0], -1))

    def successor(self) -> Tensor:
        """(windows, width) the context of the next windows."""
        return torch.cat(self._next, 1)
