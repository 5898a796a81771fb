"""Ragged batches as packed rows.

The windows of all streams are laid end to end in one (rows, channels) matrix, so that every
pointwise layer is one matrix product without padding. Only convolutions look across rows; for them
`Neighbours` puts each window between its context: what was kept from the window before on the left,
zeros where nothing is known yet on the right.
"""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

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


class Neighbours(Protocol):
    """What a convolution over packed rows needs: its context in, its context out."""

    def spread(self, x: Tensor, kept: Tensor) -> Tensor:
        """Rows (total, channels) and kept context (windows, left, channels), in order.

        The result is (n, rows with left and right context, channels); n windows when they are even,
        otherwise n is 1 and windows lie end to end.
        """
        ...

    def centred(self, results: Tensor) -> Tensor:
        """Results of a convolution over `spread` -> (total, ..): without what it gives where two
        windows meet."""
        ...

    def keep(self, spread: Tensor) -> Tensor:
        """(windows, left * channels) context of the next windows: the rows before their first."""
        ...


class Layout(Protocol):
    """What the networks need to know of a batch at one frame rate; see `Rows`."""

    def neighbours(self, left: int, right: int) -> Neighbours: ...

    def final(self, x: Tensor) -> Tensor: ...


class EvenNeighbours:
    """Context around windows that are all alike; everything follows from the tensors' shapes.

    left, right: rows of context; ahead: rows at the end of each window that are not final.
    """

    def __init__(self, left: int, right: int, ahead: int) -> None:
        self.left = left
        self.right = right
        self.ahead = ahead

    def spread(self, x: Tensor, kept: Tensor) -> Tensor:
        windows, channels = kept.shape[0], x.shape[-1]
        parts = [kept, x.view(windows, -1, channels)]
        if self.right:
            parts.append(x.new_zeros(windows, self.right, channels))
        return torch.cat(parts, 1)

    def centred(self, results: Tensor) -> Tensor:
        return results.flatten(0, 1)

    def keep(self, spread: Tensor) -> Tensor:
        stop = spread.shape[1] - self.right - self.ahead
        return spread[:, stop - self.left : stop].flatten(1)


class RaggedNeighbours:
    """Context around windows of any lengths, by look-up.

    placed: where each row of `spread` is in the rows, the kept context and one row of zeros, end to
    end. centres: where each row is in the results of a convolution over `spread`. following: the
    rows of `spread` before each next window.
    """

    def __init__(self, right: int, placed: Tensor, centres: Tensor, following: Tensor) -> None:
        self.right = right
        self.placed = placed
        self.centres = centres
        self.following = following

    def spread(self, x: Tensor, kept: Tensor) -> Tensor:
        channels = x.shape[-1]
        source = [x, kept.reshape(-1, channels)]
        if self.right:
            source.append(x.new_zeros(1, channels))
        return torch.cat(source).index_select(0, self.placed)[None]

    def centred(self, results: Tensor) -> Tensor:
        return results[0].index_select(0, self.centres)

    def keep(self, spread: Tensor) -> Tensor:
        return spread[0][self.following].flatten(1)


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
        self.ahead = int(counts[0] - settled[0])
        self._neighbours: dict[tuple[int, int], Neighbours] = {}

    @cached_property
    def even(self) -> bool:
        """All windows have the same rows, as many of them final: no row needs to be looked up."""
        same = self.counts == self.counts[0]
        return bool((same & (self.settled == self.settled[0])).all())

    @cached_property
    def any_ahead(self) -> bool:
        """Some window has rows that are not final."""
        return not np.array_equal(self.counts, self.settled)

    def index(self, indices: Counts) -> Tensor:
        """Row indices as a tensor on the device of the rows."""
        tensor = torch.from_numpy(indices)
        if self.device.type == "cpu":
            return tensor
        return tensor.pin_memory().to(self.device, non_blocking=True)

    def doubled(self) -> Rows:
        """The same windows at twice the frame rate."""
        return Rows(2 * self.counts, 2 * self.settled, self.device)

    def neighbours(self, left: int, right: int) -> Neighbours:
        """What a convolution with that much context needs to know."""
        found = self._neighbours.get((left, right))
        if found is None:
            if self.even:
                found = EvenNeighbours(left, right, self.ahead)
            else:
                found = RaggedNeighbours(right, *self.look_ups(left, right))
            self._neighbours[left, right] = found
        return found

    def final(self, x: Tensor) -> Tensor:
        """The final rows of x (total, channels), (sum of settled, channels)."""
        if self.even:
            return final_of_even(x, self.windows, self.ahead)
        return x.index_select(0, self.final_rows) if self.any_ahead else x

    @cached_property
    def final_rows(self) -> Tensor:
        """(sum of settled,) which rows are final."""
        return self.index(np.repeat(self.starts, self.settled) + ranges(self.settled))

    def look_ups(self, left: int, right: int) -> tuple[Tensor, Tensor, Tensor]:
        """`placed`, `centres` and `following` of `RaggedNeighbours`."""
        widths = self.counts + left + right
        starts = np.cumsum(widths) - widths
        window = np.repeat(np.arange(self.windows), widths)
        position = ranges(widths) - left
        known = self.starts[window] + position
        kept = self.total + window * left + left + position
        zeros = self.total + self.windows * left
        inside = np.where(position < self.counts[window], known, zeros)
        placed = np.where(position < 0, kept, inside)
        centres = np.repeat(starts, self.counts) + ranges(self.counts)
        following = (starts + self.settled)[:, None] + np.arange(left)
        return self.index(placed), self.index(centres), self.index(following)


def final_of_even(x: Tensor, windows: int, ahead: int) -> Tensor:
    """Rows of even windows without the last `ahead` of each."""
    if not ahead:
        return x
    whole = x.view(windows, -1, x.shape[-1])
    return whole[:, : whole.shape[1] - ahead].flatten(0, 1)


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
