"""How long a cancelled request keeps its slot: in steps of the engine process and in seconds.

The front end notes when it lets go of a request, the scheduler in the engine process when the slot
is free (`FrameStore.note_freed`). Both count the same steps and read the same clock of the system.
"""

from __future__ import annotations

from bisect import bisect_left

from engine.api import Spread
from engine.frames import FrameStore

STEPS = (1.0, 2.0, 3.0, 4.0, 8.0, 16.0)
SECONDS = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0)
_FORGET_NS = 10 * 10**9
"""What ended by itself just then is never noted as freed."""


class _Counts:
    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def spread(self) -> Spread:
        return Spread(self._bounds, tuple(self._counts), self._total)


class Cancels:
    """Follows the cancelled requests of one engine; all methods belong to the front end."""

    def __init__(self, store: FrameStore) -> None:
        self._store: FrameStore | None = store
        self._seen = 0
        self._pending: dict[int, tuple[int, int]] = {}
        self._steps, self._seconds = _Counts(STEPS), _Counts(SECONDS)

    def begin(self, number: int, now_ns: int) -> None:
        """The request with this number is about to be cancelled."""
        if self._store is None:
            return
        self._pending[number] = self._store.steps, now_ns
        oldest = next(iter(self._pending))
        if now_ns - self._pending[oldest][1] > _FORGET_NS:
            del self._pending[oldest]

    def collect(self) -> None:
        """Take in what the engine process has freed meanwhile."""
        if self._store is None:
            return
        self._seen, freed = self._store.freed_since(self._seen)
        for number, step, at in freed.tolist():
            begun = self._pending.pop(number, None)
            if begun is not None:
                self._steps.add(step - begun[0] + 1)
                self._seconds.add(max(0, at - begun[1]) / 1e9)

    def spreads(self) -> tuple[Spread, Spread]:
        """Steps and seconds of all so far."""
        self.collect()
        return self._steps.spread(), self._seconds.spread()

    def close(self) -> None:
        """The store is about to go."""
        self.collect()
        self._store = None
