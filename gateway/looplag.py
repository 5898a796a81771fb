"""How late the event loop is: what blocks it delays every packet of every session."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

PERIOD_SECONDS = 0.005
"""Between two looks. A block is read too short by at most this."""
_WINDOW_SECONDS = 30.0


class LoopLag:
    """Asks to be called every `PERIOD_SECONDS` and tells by how much that was late, in seconds, and
    how much of it the loop's thread ran: the rest is due to whatever else the machine does.
    """

    def __init__(self, observe: Callable[[float, float], None]) -> None:
        self._observe = observe
        self._ran = time.thread_time()
        self._loop = asyncio.get_running_loop()
        self._due = self._loop.time()
        self._window_ends = self._due + _WINDOW_SECONDS
        self._longest = self._longest_before = 0.0
        self._look()

    def _look(self) -> None:
        now = self._loop.time()
        lag = max(0.0, now - self._due)
        ran, before = time.thread_time(), self._ran
        self._observe(lag, min(lag, ran - before))
        if now >= self._window_ends:
            self._longest, self._longest_before = 0.0, self._longest
            self._window_ends = now + _WINDOW_SECONDS
        self._longest = max(self._longest, lag)
        self._ran = time.thread_time()
        self._due = now + PERIOD_SECONDS
        self._timer = self._loop.call_at(self._due, self._look)

    @property
    def longest(self) -> float:
        """The greatest of the last 30 to 60 seconds."""
        return max(self._longest, self._longest_before)

    def close(self) -> None:
        """Stop looking."""
        self._timer.cancel()
