"""When a writer is asked to pause: flow control on the side of the text."""

from __future__ import annotations

from gateway.protocol import FlowPause, FlowResume
from gateway.rates import Bucket

_HIGH, _LOW = 0.75, 0.5
BURST = 2
"""Text may come at any speed up to so many times the backlog."""


class WriterFlow:
    """Two measures with a limit each: text that waits to be spoken, and text that came lately.

    Pause when one is above three quarters of its limit, go on when both are at half of it.
    """

    def __init__(self, most_chars: int, chars_per_second: float) -> None:
        self._most = most_chars
        self._lately = Bucket(chars_per_second)
        self.paused = False

    def add(self, chars: int, now: float) -> None:
        """Text was taken."""
        self._lately.add(chars, now)

    def too_fast(self, chars: int, now: float) -> float:
        """Seconds until so much more text may come; 0 if it may now."""
        return self._lately.until(BURST * self._most - chars, now)

    def check(self, backlog: int, now: float) -> FlowPause | FlowResume | None:
        """What to tell the writer now that `backlog` characters wait, if anything."""
        fullest = max(backlog / self._most, self._lately.level(now) / (BURST * self._most))
        if not self.paused and fullest > _HIGH:
            self.paused = True
            return FlowPause(backlog=backlog)
        if self.paused and fullest <= _LOW:
            self.paused = False
            return FlowResume(backlog=backlog)
        return None

    def wake(self, now: float) -> float | None:
        """When to `check` again if nothing else happens."""
        wait = self._lately.until(_LOW * BURST * self._most, now) if self.paused else 0.0
        return now + wait if wait else None
