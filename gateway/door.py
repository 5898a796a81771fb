"""The door for what is not a WebSocket: a session of `/v1/stream` without a socket.

HTTP routes and other protocols speak through it, so that there is one way to make sound: the same
session, turns, timeline, admission, metrics and recordings as for a client of `/v1/stream`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import orjson
from starlette.requests import HTTPConnection

from engine.api import EngineLimits, Synthesizer, Voice
from gateway.actions import Close, Resume
from gateway.auth import Denied, as_refusal
from gateway.client import VoiceClient
from gateway.drain import Watched
from gateway.errors import ERRORS
from gateway.link import GatewayError
from gateway.pacing import Refusal
from gateway.runner import Runner
from gateway.sessions import Sessions
from gateway.settings import Settings

URL = "local:"
_BURST = 8
"""Messages taken before other tasks get their turn, as for a WebSocket."""


class LocalLink:
    """What `gateway.link.Link` is to a server elsewhere, for a session in this process."""

    def __init__(
        self, begin: Callable[[], Runner], sessions: Sessions, links: set[Watched]
    ) -> None:
        self.resumes = 0
        self._begin = begin
        self._sessions = sessions
        self._links = links
        self._runner: Runner | None = None
        self._may_take = asyncio.Event()
        self._closed: str | None = None
        self._taken = 0
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the session is; a server that stops waits for it."""

    async def open(self) -> None:
        """Raises `GatewayError` when no session is let in."""
        self._runner = runner = self._begin()
        runner.connection = self
        self._sessions.open(runner)
        self._links.add(self)

    async def close(self) -> None:
        """End the session and free what it has in the engine."""
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.connection = None
            await self._sessions.left(runner, "disconnected", lost=False)
        self._links.discard(self)
        if not self.over.done():
            self.over.set_result(None)

    def resumable(self, token: str, seconds: float) -> None:
        """Nothing is between us that could be lost."""

    async def send(self, message: dict[str, Any]) -> None:
        """One client message. Raises `GatewayError` when the session is over."""
        runner = self._live()
        runner.session.receive(orjson.dumps(message).decode(), runner.clock())
        runner.settle()
        await runner.read()
        await asyncio.sleep(0)

    async def receive(self) -> str | bytes:
        """The next message of the server. Raises `GatewayError` when the session is over."""
        while True:
            runner = self._live()
            await runner.turn()
            item = runner.take()
            if isinstance(item, Close):
                runner.ended = runner.ended or item.reason
                self._closed = item.reason
            elif item is not None:
                self._taken += 1
                if self._taken % _BURST == 0:
                    await asyncio.sleep(0)
                return item
            else:
                # It wakes this very link.
                runner.settle()
                self._may_take.clear()
                await self._may_take.wait()

    def _live(self) -> Runner:
        if self._runner is None or self._closed is not None:
            code = self._closed or "closed"
            raise GatewayError(code, f"The session is closed ({code}).")
        return self._runner

    # -- what the session wants ------------------------------------------------------------------

    def wake(self) -> None:
        """There may be something to take."""
        self._may_take.set()

    def resume(self, request: Resume) -> None:
        raise AssertionError("a session without a socket is not resumed")

    def fail(self, code: str) -> None:
        """The session ends with an error code."""
        self._closed = code
        self._may_take.set()


class Door:
    """Opens sessions for the other protocols."""

    def __init__(
        self,
        *,
        begin: Callable[[str, Settings], Runner],
        refuse: Callable[[str], Refusal | None],
        client: Callable[[HTTPConnection], str],
        allowed: Callable[[HTTPConnection], bool],
        admit: Callable[[HTTPConnection, str | None], Denied | None],
        synthesizer: Synthesizer,
        sessions: Sessions,
        links: set[Watched],
        settings: Settings,
    ) -> None:
        """`begin`: a session of a client under these settings; `refuse`: why none is let in now;
        `client`: whose a connection is; `allowed`: whether its page may connect; `admit`: why not
        with the key it showed, or with this one. A server that stops waits for `links`.
        """
        self.settings = settings
        self.who = client
        self.allowed = allowed
        self._admit = admit
        self._begin = begin
        self._refuse = refuse
        self._synthesizer = synthesizer
        self._sessions = sessions
        self._links = links

    def let_in(self, connection: HTTPConnection) -> None:
        """Raises `GatewayError` for a page that may not connect: it could not read the answer, but
        it could keep the engine busy."""
        if not self.allowed(connection):
            raise GatewayError("origin_not_allowed", ERRORS["origin_not_allowed"].meaning)

    def show(self, connection: HTTPConnection, key: str | None) -> None:
        """A key that came after the handshake, if any did. Raises `GatewayError` unless a key is in
        force by now, or none is asked for."""
        denied = self._admit(connection, key)
        if denied is not None:
            refusal = as_refusal(denied)
            raise GatewayError(refusal.code, refusal.message, refusal.retry_after_ms or None)

    @property
    def voices(self) -> Sequence[Voice]:
        return self._synthesizer.voices()

    @property
    def limits(self) -> EngineLimits:
        return self._synthesizer.limits

    def client(
        self,
        who: str,
        *,
        pace: Literal["listener", "reader", "idle"] = "reader",
        **start: Any,
    ) -> VoiceClient:
        """A client of a new session, which begins when it is entered; `start`: its wishes, as for
        `VoiceClient`.

        `pace`: `listener` hears it as it comes and is kept some seconds ahead. A `reader` may hear
        it or save it: first as urgent as a listener, then as fast as the engine goes without
        letting listeners run dry. `idle` comes after everybody else.

        Entering raises `GatewayError`.
        """
        settings = self.settings
        if pace == "reader":
            settings = replace(settings, hold_lead_seconds=math.inf)

        def begin() -> Runner:
            refusal = self._refuse(who)
            if refusal is not None:
                raise GatewayError(refusal.code, refusal.message, refusal.retry_after_ms)
            return self._begin(who, settings)

        link = LocalLink(begin, self._sessions, self._links)
        return VoiceClient(URL, live=pace != "idle", link=link, **start)
