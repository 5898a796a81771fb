"""What one peer may take from the sockets: connections, time for a request's head, bytes of it.

uvicorn reads a request for as long as it comes. Here its head has a length and a deadline, control
and empty frames of WebSockets cannot pile up, and there is an end to sockets.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from asyncio.transports import BaseTransport
from collections import Counter
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.settings import Settings
from gateway.transport import StreamProtocol

_log = logging.getLogger("voxgate.limits")
_SPARE_DESCRIPTORS = 64
"""For the engine, files and pipes."""
_MOST_FRAGMENTS = 1024
_MOST_UNSENT_BYTES = 262_144
"""Answers to pings that a peer does not read."""
_HEADS = {
    408: b"HTTP/1.1 408 Request Timeout\r\n",
    431: b"HTTP/1.1 431 Request Header Fields Too Large\r\n",
    503: b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 2\r\n",
}


def spare_descriptors(settings: Settings) -> int:
    """Raise the limit of open files as far as this process may; returns how many sockets fit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = settings.max_connections + _SPARE_DESCRIPTORS
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    if soft == resource.RLIM_INFINITY:
        return settings.max_connections
    return max(1, min(settings.max_connections, soft - _SPARE_DESCRIPTORS))


class GuardedHttp(HttpToolsProtocol):
    """One connection until it becomes a WebSocket. Made by `guarded_http`."""

    settings: Settings
    most: int
    by_address: Counter[str]

    _head_timer: asyncio.TimerHandle | None = None
    _pending = 0
    """Bytes since the last that were part of a body or ended a head."""
    _address: str | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        address = self.client[0] if self.client else ""
        most = self.settings.max_connections_per_client
        if len(self.connections) > self.most or (most and self.by_address[address] >= most):
            _log.info("a connection of %s is closed: too many", address)
            self._reject(503)
            return
        self._address = address
        self.by_address[address] += 1
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_came()
        self.forget()
        super().connection_lost(exc)

    def forget(self) -> None:
        """The connection is over, or somebody else counts it."""
        if self._address is not None:
            self.by_address[self._address] -= 1
            if not self.by_address[self._address]:
                del self.by_address[self._address]
            self._address = None

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._head_timer is None and (self.cycle is None or self.cycle.response_complete):
            self._expect_head()
        self._pending += len(data)
        super().data_received(data)
        if self._pending > self.settings.max_header_bytes and not self.transport.is_closing():
            self._reject(431)

    def on_headers_complete(self) -> None:
        self._pending = 0
        self._head_came()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._pending = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._pending = 0
        super().on_message_complete()

    def handle_websocket_upgrade(self) -> None:
        address, self._address = self._address, None
        super().handle_websocket_upgrade()
        protocol = self.transport.get_protocol()
        if isinstance(protocol, GuardedStream):
            protocol.address, protocol.by_address = address, self.by_address
        elif address is not None:
            self._address = address
            self.forget()

    def _expect_head(self) -> None:
        self._head_timer = self.loop.call_later(
            self.settings.handshake_timeout_seconds, self._head_is_late
        )

    def _head_is_late(self) -> None:
        if self._pending:
            self._reject(408)
        else:
            # Browsers connect in advance; an answer would be taken for that of their next request.
            self._head_came()
            self.transport.close()

    def _head_came(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _reject(self, status: int) -> None:
        self._head_came()
        if not self.transport.is_closing():
            self.transport.write(_HEADS[status] + b"connection: close\r\ncontent-length: 0\r\n\r\n")
            self.transport.close()
            # A peer that takes no answer would keep the socket.
            self.loop.call_later(1.0, self.transport.abort)


class GuardedStream(StreamProtocol):
    """A WebSocket whose peer cannot make this process hold what it never ends or never reads."""

    address: str | None = None
    by_address: Counter[str]

    def connection_lost(self, exc: Exception | None) -> None:
        if self.address is not None:
            self.by_address[self.address] -= 1
            if not self.by_address[self.address]:
                del self.by_address[self.address]
            self.address = None
        super().connection_lost(exc)

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)
        # It would log every header and the begin of every message: keys, and what users say.
        self.conn.debug = False

    def handle_cont(self, event: Any) -> None:
        if len(self.frames) >= _MOST_FRAGMENTS:
            self.fail(1009, "too many fragments")
            return
        super().handle_cont(event)

    def handle_ping(self) -> None:
        super().handle_ping()
        if self.transport.get_write_buffer_size() > _MOST_UNSENT_BYTES:
            self.fail(1008, "slow_reader")


def guarded_http(settings: Settings, most: int) -> type[GuardedHttp]:
    """The protocol of one server: at most `most` sockets."""
    return type(
        "GuardedHttp",
        (GuardedHttp,),
        {"settings": settings, "most": most, "by_address": Counter()},
    )
