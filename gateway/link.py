"""The WebSocket under `VoiceClient`: one connection, or several in turn for the same session."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
from collections import deque
from itertools import islice
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

KEY_VARIABLE = "VOXGATE_API_KEY"
_CONNECT_SECONDS = 10.0
_PING_SECONDS = 5.0
"""A lost connection is found well before the server gives the session up."""
_UNCONFIRMED = 256
"""Every so many messages the server is asked whether it has them."""
_PING_ID = "link"
_RETRY_SECONDS = (0.05, 2.0)
_LATER = ("starting", "engine_restarting", "draining", "capacity")


class GatewayError(Exception):
    """The server refused, failed, or went away. `code` is stable; see docs/protocol.md.

    `field` names what was wrong, `available` what would do.
    """

    def __init__(
        self,
        code: str,
        message: str,
        retry_after_ms: int | None = None,
        *,
        field: str | None = None,
        available: list[str] | None = None,
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.retry_after_ms = retry_after_ms
        self.field = field
        self.available = available


class Link:
    """Messages up and down, in order, each once. After `resumable` was called a lost connection is
    replaced by another one without anybody noticing.
    """

    def __init__(self, url: str, *, reconnect: bool, api_key: str | None = None) -> None:
        """`api_key`: if the server asks for one; else the variable `VOXGATE_API_KEY`."""
        self._shown = url
        self.url = _routed(url) if reconnect else url
        self._key = api_key or os.environ.get(KEY_VARIABLE)
        self.resumes = 0
        """How often the session went on over another connection."""
        self._reconnect = reconnect
        self._socket: ClientConnection
        self._lost: ClientConnection | None = None
        self._sending = asyncio.Lock()
        self._token: str | None = None
        self._resume_seconds = 0.0
        self._received = 0
        self._unconfirmed: deque[str] = deque()
        self._confirmed = 0
        self._pings: deque[int] = deque()

    async def open(self) -> None:
        """Raises `GatewayError`: why the server lets nobody in, `unreachable` or
        `not_a_gateway`."""
        try:
            self._socket = await self._connect()
        except InvalidStatus as refusal:
            raise _refused(self._shown, refusal) from refusal
        except (OSError, TimeoutError, InvalidHandshake) as failure:
            raise GatewayError("unreachable", f"{self._shown}: {failure}") from failure

    async def close(self) -> None:
        await self._socket.close()

    def resumable(self, token: str, seconds: float) -> None:
        """From now on the session survives the loss of its connection for so many seconds."""
        self._token, self._resume_seconds = token, seconds

    async def send(self, message: dict[str, Any]) -> None:
        """Raises `GatewayError` when the connection is lost for good."""
        async with self._sending:
            socket = self._socket
            try:
                await self._write(message)
                if self._unconfirmed and not len(self._unconfirmed) % _UNCONFIRMED:
                    await self._write({"type": "ping", "id": _PING_ID})
                return
            except ConnectionClosed as failure:
                closed = failure
        await self._restore(socket, closed)

    async def receive(self) -> str | bytes:
        """Raises `GatewayError` when the connection is lost for good."""
        while True:
            socket = self._socket
            try:
                raw = await socket.recv()
            except ConnectionClosed as closed:
                await self._restore(socket, closed)
                continue
            if socket is self._lost:
                # It was not counted when the session was resumed, so it comes again.
                continue
            self._received += 1
            if not self._reconnect or not self._confirms(raw):
                return raw

    async def _connect(self) -> ClientConnection:
        ping = _PING_SECONDS if self._reconnect else 20.0
        return await connect(
            self.url,
            additional_headers={"authorization": f"Bearer {self._key}"} if self._key else None,
            compression=None,
            max_size=None,
            open_timeout=_CONNECT_SECONDS,
            ping_interval=ping,
            ping_timeout=2 * ping if self._reconnect else 20.0,
        )

    async def _write(self, message: dict[str, Any]) -> None:
        raw = orjson.dumps(message).decode()
        if self._reconnect:
            self._unconfirmed.append(raw)
            if message["type"] == "ping":
                self._pings.append(self._confirmed + len(self._unconfirmed))
        await self._socket.send(raw)

    def _confirms(self, raw: str | bytes) -> bool:
        """Forget what a pong confirms; whether it answers a ping of this link."""
        if isinstance(raw, bytes) or '"pong"' not in raw[:20]:
            return False
        self._confirm(self._pings.popleft())
        return bool(orjson.loads(raw).get("id") == _PING_ID)

    def _confirm(self, count: int) -> None:
        while self._confirmed < count:
            self._unconfirmed.popleft()
            self._confirmed += 1

    # -- another connection ----------------------------------------------------------------------

    async def _restore(self, lost: ClientConnection, closed: ConnectionClosed) -> None:
        """Resume the session over another connection. Raises `GatewayError` when that fails."""
        if self._token is None or not _was_lost(closed):
            raise _gone(closed) from closed
        async with self._sending:
            if self._socket is not lost:
                return
            self._lost = lost
            try:
                async with asyncio.timeout(self._resume_seconds):
                    await self._resume()
            except (TimeoutError, GatewayError) as failure:
                self._token = None
                raise _gone(closed) if isinstance(failure, TimeoutError) else failure from closed

    async def _resume(self) -> None:
        wait, longest = _RETRY_SECONDS
        while True:
            try:
                socket = await self._connect()
                taken = await self._ask(socket)
                if taken is not None:
                    pending = list(islice(self._unconfirmed, taken - self._confirmed, None))
                    for raw in pending:
                        await socket.send(raw)
                    self._socket = socket
                    self.resumes += 1
                    return
            except (OSError, TimeoutError, InvalidHandshake, ConnectionClosed):
                pass
            await asyncio.sleep(wait * random.uniform(0.5, 1.0))
            wait = min(2 * wait, longest)

    async def _ask(self, socket: ClientConnection) -> int | None:
        """How many messages the server has; None when it is to be asked again later."""
        request = {"type": "session.resume", "token": self._token, "received": self._received}
        await socket.send(orjson.dumps(request).decode())
        answer = orjson.loads(await socket.recv())
        if answer["type"] == "session.resumed":
            return int(answer["received"])
        await socket.close()
        if answer.get("code") in _LATER:
            return None
        raise GatewayError(answer.get("code", "unexpected"), answer.get("message", ""))


def _refused(url: str, refusal: InvalidStatus) -> GatewayError:
    """What the body of a refused handshake says, if it is the gateway's."""
    try:
        error = orjson.loads(refusal.response.body)
        return GatewayError(error["code"], error["message"], error.get("retry_after_ms"))
    except (ValueError, KeyError, TypeError):
        status = refusal.response.status_code
        return GatewayError(
            "not_a_gateway",
            f"{url} answers with HTTP {status}, but not as a gateway does. Give the address alone, "
            "as in ws://127.0.0.1:8080.",
        )


def _routed(url: str) -> str:
    """A name that is the same on every connection of the session, by which a load balancer finds
    the server where it lives."""
    parts = urlsplit(url)
    if "route=" in parts.query:
        return url
    query = "&".join(filter(None, (parts.query, f"route={secrets.token_urlsafe(9)}")))
    return urlunsplit(parts._replace(query=query))


def _was_lost(closed: ConnectionClosed) -> bool:
    """Whether the session may still be there."""
    if closed.rcvd is None:
        return closed.sent is None or closed.sent.code != 1000
    code, reason = closed.rcvd.code, closed.rcvd.reason
    return reason == "slow_reader" or code == 1001 or (code == 1011 and reason != "internal")


def _gone(closed: ConnectionClosed) -> GatewayError:
    code = closed.rcvd.reason if closed.rcvd is not None and closed.rcvd.reason else "closed"
    return GatewayError(code, f"The connection is closed ({closed}).")
