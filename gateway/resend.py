"""What a session sent last, to be sent again when its connection was lost.

Messages count from 0 over all connections of a session, JSON and audio alike. A WebSocket keeps
their order, so the number of messages a client has says exactly which ones it lacks.
"""

from __future__ import annotations

from collections import deque
from itertools import islice

from gateway.protocol import ProtocolError


class Resend:
    """The last `most_bytes` of messages sent; with 0 none is kept."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._kept: deque[str | bytes] = deque()
        self._bytes = 0
        self._again: deque[str | bytes] = deque()
        self.sent = 0
        """Messages sent, each counted once."""

    def keep(self, most_bytes: int) -> None:
        """Keep so much from now on."""
        self._most_bytes = most_bytes

    def record(self, message: str | bytes) -> None:
        """A message goes out for the first time."""
        self.sent += 1
        self._kept.append(message)
        self._bytes += len(message)
        while self._bytes > self._most_bytes:
            self._bytes -= len(self._kept.popleft())

    def rewind(self, received: int) -> int:
        """Send again all but the first `received` messages; returns how many those are.

        Raises `ProtocolError`: `bad_field` when so many were never sent, `replay_gap` when they are
        not kept any more. Nothing changes then.
        """
        missing = self.sent - received
        if missing < 0:
            raise ProtocolError(
                "bad_field", f"Only {self.sent} messages were sent.", field="received"
            )
        if missing > len(self._kept):
            raise ProtocolError("replay_gap")
        self._again = deque(islice(self._kept, len(self._kept) - missing, None))
        return missing

    def next(self) -> str | bytes | None:
        """The next message to send again, or None when all were."""
        return self._again.popleft() if self._again else None
