"""The asyncio shell around one session: socket, engine and clock here, `Session` there.

One task reads, one sends, and each piece in the engine has one. Every event goes into the session,
and `_settle` carries out what the session wants.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import Callable, Coroutine
from functools import partial

from starlette.websockets import WebSocket, WebSocketDisconnect

from engine.api import SpeechError, SpeechRequest, Synthesizer
from gateway.errors import ERRORS
from gateway.metrics import Metrics
from gateway.session import CancelPiece, Close, Session
from gateway.transport import EXTENSION

_log = logging.getLogger("voxgate.connection")
_BURST = 8
_MESSAGES = 32
"""Messages sent and taken before other connections get their turn: below a millisecond."""
_LOOK_SECONDS = 0.5


class Connection:
    """Runs one session over one WebSocket; `run` returns when both are over."""

    def __init__(
        self,
        socket: WebSocket,
        session: Session,
        synthesizer: Synthesizer,
        metrics: Metrics,
        *,
        stall_limit: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._socket = socket
        self._session = session
        self._synthesizer = synthesizer
        self._metrics = metrics
        self._stall_limit = stall_limit
        self._clock = clock
        self._pieces: dict[int, asyncio.Task[None]] = {}
        self._may_fetch = asyncio.Event()
        self._may_send = asyncio.Event()
        self._sending_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: float | None = None
        self._cancelled_at: dict[int, float] = {}
        self._ended = "disconnected"
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the connection is."""

    async def run(self) -> str:
        """Serve until either side ends it; returns why, for the metrics."""
        sender = self._guard(self._send())
        watchdog = self._guard(self._watch())
        self._settle()
        try:
            await self._receive()
        except Exception as fault:
            self._crash(fault)
        finally:
            self._session.abandon()
            self._settle()
            if self._timer is not None:
                self._timer.cancel()
            tasks = [sender, watchdog, *self._pieces.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.over.set_result(None)
        return self._ended

    def drain(self) -> None:
        """Let the session speak what it has, then close."""
        self._session.drain(self._clock())
        self._settle()

    async def _receive(self) -> None:
        for count in itertools.count(1):
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            raw = message.get("text")
            if raw is None:
                raw = message["bytes"]
            self._session.receive(raw, self._clock())
            self._settle()
            if count % _MESSAGES == 0:
                await asyncio.sleep(0)

    async def _send(self) -> None:
        burst = 0
        while True:
            item = self._session.take(self._clock())
            if item is None:
                self._settle()
                self._may_send.clear()
                await self._may_send.wait()
                burst = 0
                continue
            self._sending_since = self._clock()
            try:
                if isinstance(item, Close):
                    self._ended = item.reason
                    await self._socket.close(item.code, item.reason)
                    return
                if isinstance(item, str):
                    await self._socket.send_text(item)
                else:
                    await self._socket.send_bytes(item)
            except (WebSocketDisconnect, RuntimeError):
                # The connection is closed; the reader sees it too and ends everything.
                return
            self._sending_since = None
            burst += 1
            if burst % _BURST == 0:
                self._settle()
                await asyncio.sleep(0)

    async def _speak(self, key: int, request: SpeechRequest) -> None:
        """Carry one piece's audio from the engine into the session."""
        stream = self._synthesizer.speak(request)
        try:
            async with contextlib.aclosing(stream):
                async for chunk in stream:
                    self._session.audio(key, chunk, self._clock())
                    self._settle()
                    if chunk.final:
                        return
                    while not self._session.accepts(key):
                        await self._may_fetch.wait()
            error = SpeechError("piece_failed", "The engine ended without a final chunk.")
        except SpeechError as failure:
            error = failure
        except Exception:
            _log.exception("session %s: piece %d failed", self._session.name, key)
            error = SpeechError("piece_failed", "A fault in the speech engine.", retryable=True)
        self._session.failed(key, error, self._clock())
        self._settle()

    def _over(self, key: int, task: asyncio.Task[None]) -> None:
        if self._pieces.get(key) is task:
            del self._pieces[key]
        cancelled_at = self._cancelled_at.pop(key, None)
        if cancelled_at is not None:
            self._metrics.cancelled(self._clock() - cancelled_at)

    def _guard(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run `work`; a fault in it ends the connection instead of leaving it half alive."""
        task = asyncio.create_task(work)
        task.add_done_callback(self._check)
        return task

    def _check(self, task: asyncio.Task[None]) -> None:
        fault = None if task.cancelled() else task.exception()
        if fault is not None:
            self._crash(fault)

    def _crash(self, fault: BaseException) -> None:
        _log.error("session %s ends with a fault", self._session.name, exc_info=fault)
        self._ended = "internal"
        self._metrics.error("internal")
        self._fail(ERRORS["internal"].close or 1011, "internal")

    def _fail(self, code: int, reason: str) -> None:
        self._socket.scope["extensions"][EXTENSION](code, reason)

    async def _watch(self) -> None:
        """End the connection of a reader that takes nothing."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            since = self._sending_since
            if since is not None and self._clock() - since > self._stall_limit:
                self._ended = "slow_reader"
                self._metrics.error("slow_reader")
                self._fail(ERRORS["slow_reader"].close or 1008, "slow_reader")
                return

    def _settle(self) -> None:
        """Carry out the session's commands and wake whom they concern."""
        for command in self._session.commands():
            if isinstance(command, CancelPiece):
                task = self._pieces.get(command.key)
                if task is not None:
                    self._cancelled_at[command.key] = self._clock()
                    task.cancel()
            else:
                task = self._guard(self._speak(command.key, command.request))
                self._pieces[command.key] = task
                task.add_done_callback(partial(self._over, command.key))
        self._may_send.set()
        self._may_fetch.set()
        self._may_fetch.clear()
        self._set_timer()

    def _set_timer(self) -> None:
        deadline = self._session.deadline
        if deadline == self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = deadline
        if deadline is not None:
            delay = max(0.0, deadline - self._clock())
            self._timer = asyncio.get_running_loop().call_later(delay, self._tick)

    def _tick(self) -> None:
        self._timer = self._timer_at = None
        try:
            self._session.tick(self._clock())
            self._settle()
        except Exception as fault:
            self._crash(fault)
