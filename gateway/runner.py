"""A session at work: its pieces in the engine and its clock, whatever connection it has.

Every event goes into the session, and `settle` carries out what the session wants.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Protocol

from engine.api import SpeechError, SpeechRequest, Synthesizer
from gateway.actions import CancelPiece, Outgoing, Resume, StartPiece
from gateway.metrics import Metrics
from gateway.protocol import ServerDraining
from gateway.session import Session
from gateway.slices import Slices

_log = logging.getLogger("voxgate.session")


class Attached(Protocol):
    """The connection a session has now."""

    def wake(self) -> None:
        """There may be something to send."""

    def resume(self, request: Resume) -> None:
        """The client asks for another session."""

    def fail(self, code: str) -> None:
        """End the connection for certain, with an error code."""


class Runner:
    """Runs one session until `close`."""

    def __init__(
        self,
        session: Session,
        synthesizer: Synthesizer,
        metrics: Metrics,
        *,
        client: str,
        clock: Callable[[], float] = time.monotonic,
        slices: Slices | None = None,
        voices: Mapping[str, str] | None = None,
    ) -> None:
        """`slices`: of the event loop, shared with all other sessions. `voices`: keys of voices by
        their ids, as they are when the session begins; it keeps them."""
        self.session = session
        self.client = client
        """Whose session it is, for limits."""
        self.clock = clock
        self.connection: Attached | None = None
        self.ended: str | None = None
        """Why the session is over, once it is."""
        self._slices = slices or Slices()
        self._voices = voices or {}
        self._synthesizer = synthesizer
        self._metrics = metrics
        self._pieces: dict[int, asyncio.Task[None]] = {}
        self._may_fetch = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: float | None = None
        self._closing: asyncio.Task[None] | None = None
        self._cancelled_at: dict[int, float] = {}
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the session is closed."""

    def drain(self, notice: ServerDraining) -> None:
        """Let the session speak what it has, then close."""
        self.session.drain(self.clock(), notice)
        self.settle()

    def hurry(self) -> None:
        """Close it now; its client is told what was not heard."""
        self.session.hurry(self.clock())
        self.settle()

    def dismiss(self, code: str) -> None:
        """End the session against its client's will, with an error code."""
        self.ended = self.ended or code
        self._metrics.error(code)
        if self.connection is not None:
            self.connection.fail(code)
        else:
            self._closing = asyncio.create_task(self.close(code))

    async def read(self) -> None:
        """Let the session read the text that came last, in turns with all other work."""
        while self.session.unread and not self.over.done():
            await asyncio.sleep(0)
            self.session.tick(self.clock())
            self.settle()

    async def turn(self) -> None:
        """Wait until the event loop has time for `take`."""
        await self._slices.turn()

    def take(self) -> Outgoing | None:
        """The next thing to send, or None; audio is encoded here."""
        began = time.perf_counter()
        item = self.session.take(self.clock())
        self._slices.spent(time.perf_counter() - began)
        return item

    async def close(self, why: str) -> None:
        """End the session and free all it has in the engine."""
        if self.over.done():
            return
        self.over.set_result(None)
        self.ended = self.ended or why
        self.abandon()
        pieces = list(self._pieces.values())
        for piece in pieces:
            piece.cancel()
        await asyncio.gather(*pieces, return_exceptions=True)

    def abandon(self) -> None:
        """Free what the session has in the engine; what it sent can still be sent again."""
        self.session.abandon()
        self.settle()

    def settle(self) -> None:
        """Carry out the session's commands and wake whom they concern."""
        for command in self.session.commands():
            if isinstance(command, CancelPiece):
                task = self._pieces.get(command.key)
                if task is not None:
                    self._cancelled_at[command.key] = self.clock()
                    task.cancel()
            elif isinstance(command, StartPiece):
                task = asyncio.create_task(self._speak(command.key, command.request))
                self._pieces[command.key] = task
                task.add_done_callback(partial(self._piece_over, command.key))
            elif self.connection is not None:
                self.connection.resume(command)
        if self.connection is not None:
            self.connection.wake()
        self._may_fetch.set()
        self._may_fetch.clear()
        self._set_timer()

    def crash(self, fault: BaseException) -> None:
        """A fault ends the session instead of leaving it half alive."""
        _log.error("session %s ends with a fault", self.session.name, exc_info=fault)
        if self.ended is None:
            self.ended = "internal"
            self._metrics.error("internal")
        if self.connection is not None:
            self.connection.fail("internal")
        else:
            self._closing = asyncio.create_task(self.close("internal"))

    async def _speak(self, key: int, request: SpeechRequest) -> None:
        """Carry one piece's audio from the engine into the session."""
        voice = self._voices.get(request.voice, request.voice)
        stream = self._synthesizer.speak(replace(request, voice=voice))
        try:
            async with contextlib.aclosing(stream):
                async for chunk in stream:
                    self.session.audio(key, chunk, self.clock())
                    self.settle()
                    if chunk.final:
                        return
                    while not self.session.accepts(key):
                        await self._may_fetch.wait()
            error = SpeechError("piece_failed", "The engine ended without a final chunk.")
        except SpeechError as failure:
            error = failure
        except Exception:
            _log.exception("session %s: piece %d failed", self.session.name, key)
            error = SpeechError("piece_failed", "A fault in the speech engine.", retryable=True)
        self.session.failed(key, error, self.clock())
        self.settle()

    def _piece_over(self, key: int, task: asyncio.Task[None]) -> None:
        if self._pieces.get(key) is task:
            del self._pieces[key]
        cancelled_at = self._cancelled_at.pop(key, None)
        if cancelled_at is not None:
            self._metrics.cancelled(self.clock() - cancelled_at)
        fault = None if task.cancelled() else task.exception()
        if fault is not None:
            self.crash(fault)

    def _set_timer(self) -> None:
        deadline = self.session.deadline
        if deadline == self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = deadline
        if deadline is not None:
            delay = max(0.0, deadline - self.clock())
            self._timer = asyncio.get_running_loop().call_later(delay, self._tick)

    def _tick(self) -> None:
        self._timer = self._timer_at = None
        try:
            self.session.tick(self.clock())
            self.settle()
        except Exception as fault:
            self.crash(fault)
