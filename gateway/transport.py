"""uvicorn's WebSocket protocol with what a stream of audio needs of its socket.

A peer that stops reading, or is gone without a word, must free everything within seconds. Closing
politely waits for the write buffer to drain, which for such a peer is never; so after a short wait
the transport is aborted. And the write buffer is kept small, so that a slow reader is noticed.
"""

from __future__ import annotations

import asyncio
from asyncio.transports import BaseTransport
from typing import Any, cast

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

EXTENSION = "voxgate.fail"
"""Key in the ASGI scope's `extensions`: `fail(code, reason)` ends the connection for certain."""
HIGH_WATER_BYTES = 16_384
"""About 4 s of Opus at 32 kbit/s beyond what the kernel buffers."""
LINGER_SECONDS = 1.0
LOST = 1006
"""Code of the disconnect when no close frame came: RFC 6455 keeps it for that."""


_open: set[StreamProtocol] = set()


def unsent_bytes() -> int:
    """What waits in this process for sockets to take it, over all WebSockets."""
    return sum(protocol.transport.get_write_buffer_size() for protocol in _open)


class StreamProtocol(WebSocketsSansIOProtocol):
    """One WebSocket connection."""

    _heard = False
    """Whether anything came since the last ping."""

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        _open.add(self)

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        # Absent when the handshake was refused. The application has not run yet: its task starts
        # in the next turn of the loop.
        if hasattr(self, "scope"):
            extensions = cast(dict[str, Any], self.scope["extensions"])
            extensions[EXTENSION] = self.fail

    async def send(self, message: Any) -> None:
        await super().send(message)
        if self.initial_response is not None and self.close_sent:
            # Or uvicorn would log every refusal as a handshake that was never answered.
            self.handshake_complete = True

    def send_receive_event_to_app(self) -> None:
        # RFC 6455 wants the connection failed; uvicorn would log a traceback for each.
        if self.curr_msg_data_type == "text":
            try:
                b"".join(self.frames).decode()
            except UnicodeDecodeError:
                self.fail(1007, "invalid_utf8")
                return
        super().send_receive_event_to_app()

    def connection_lost(self, exc: Exception | None) -> None:
        # uvicorn gives 1005 here, which is also that of a close frame without a code.
        if self.conn.close_rcvd is None:
            self.queue.put_nowait({"type": "websocket.disconnect", "code": LOST})
        super().connection_lost(exc)
        _open.discard(self)

    def data_received(self, data: bytes) -> None:
        self._heard = True
        super().data_received(data)

    def send_keepalive_ping(self) -> None:
        self._heard = False
        super().send_keepalive_ping()

    def keepalive_timeout(self) -> None:
        if self._heard:
            # The ping waits behind audio on a slow line; who sends is alive.
            self.pong_timer = self.pending_ping_payload = None
            self.send_keepalive_ping()
            return
        super().keepalive_timeout()
        self.transport.abort()

    def fail(self, code: int, reason: str) -> None:
        """Send a close frame if the socket takes it, and be gone in `LINGER_SECONDS` either way.

        The application sees the disconnect at once.
        """
        if not self.close_sent and not self.transport.is_closing():
            self.conn.fail(code, reason)
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.close_sent = True
            self.transport.close()
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        asyncio.get_running_loop().call_later(LINGER_SECONDS, self.transport.abort)
