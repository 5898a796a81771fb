"""Messages that overtake audio: answers, and the end of a session."""

from __future__ import annotations

from collections import deque

from gateway.actions import Close, Observer
from gateway.errors import ERRORS
from gateway.protocol import Error, ProtocolError, ServerMessage

_MOST = 256
"""Answers a client may leave unread; one that sends without reading is cut off."""


class Answers:
    """A short queue. Once `closing` is set nothing is added to it."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._queue: deque[ServerMessage] = deque()
        self.closing: Close | None = None
        """How the WebSocket is closed once the queue is empty."""

    def tell(self, message: ServerMessage) -> None:
        if self.closing is not None:
            return
        if isinstance(message, Error):
            self._observer.error(message.code)
        self._queue.append(message)
        if len(self._queue) > _MOST:
            self.end(ProtocolError("slow_reader").error)

    def end(self, error: Error) -> None:
        """End the session at once with an error."""
        self._observer.error(error.code)
        self._queue.append(error)
        self.closing = Close(ERRORS[error.code].close or 1011, error.code)

    def next(self) -> str | None:
        return self._queue.popleft().encode() if self._queue else None

    def clear(self) -> None:
        self._queue.clear()
