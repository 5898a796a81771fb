"""When a writer is asked to pause: flow control on the side of the text."""

from __future__ import annotations

from gateway.protocol import FlowPause, FlowResume

_HIGH, _LOW = 0.75, 0.5


class WriterFlow:
    """Pause above three quarters of the limit, go on at half of it."""

    def __init__(self, most_chars: int) -> None:
        self._most = most_chars
        self.paused = False

    def check(self, backlog: int) -> FlowPause | FlowResume | None:
        """What to tell the writer now that `backlog` characters wait, if anything."""
        if not self.paused and backlog > self._most * _HIGH:
            self.paused = True
            return FlowPause(backlog=backlog)
        if self.paused and backlog <= self._most * _LOW:
            self.paused = False
            return FlowResume(backlog=backlog)
        return None
