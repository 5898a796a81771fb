"""All sessions of a gateway: those with a connection, and those that wait for another one."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict

from gateway.metrics import Metrics
from gateway.protocol import ProtocolError
from gateway.runner import Runner
from gateway.transcript import Transcript

_GONE_KEPT = 4096
"""Tokens of sessions that are over, remembered to tell those from tokens never given."""
_TRANSCRIPTS_KEPT = 256
_TRANSCRIPT_SECONDS = 600.0
"""Captions can be fetched for a while after the session."""
_FINISHED_KEPT = 256
"""Sessions that were spoken to their end, kept for clients who lost the connection just then."""


class Sessions:
    """Which sessions live, and which of them a token resumes."""

    def __init__(self, metrics: Metrics, resume_seconds: float) -> None:
        self._metrics = metrics
        self._resume_seconds = resume_seconds
        self.live: set[Runner] = set()
        """Sessions that may still speak."""
        self._clients: Counter[str] = Counter()
        self._by_token: dict[str, Runner] = {}
        self._waiting: dict[Runner, asyncio.Task[None]] = {}
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._by_name: dict[str, Runner] = {}
        self._transcripts: OrderedDict[str, tuple[float, Transcript]] = OrderedDict()

    @property
    def resumable(self) -> bool:
        """Whether there is any session that could be resumed."""
        return any(runner.session.resumable for runner in self._by_token.values())

    @property
    def waiting(self) -> list[Runner]:
        """Sessions without a connection, which a token may still resume."""
        return list(self._waiting)

    def of_client(self, client: str) -> int:
        """How many sessions a client has."""
        return self._clients[client]

    def open(self, runner: Runner) -> None:
        """A session begins."""
        self.live.add(runner)
        self._clients[runner.client] += 1
        self._by_token[runner.session.token] = runner
        self._by_name[runner.session.name] = runner
        self._metrics.sessions.inc()

    def belongs(self, runner: Runner, client: str) -> None:
        """A session turns out to be another client's."""
        self._release(runner)
        runner.client = client
        self._clients[client] += 1

    def find(self, token: str) -> Runner:
        """The session that a token resumes. Raises `ProtocolError`."""
        runner = self._by_token.get(token)
        if runner is None or not runner.session.resumable:
            raise ProtocolError("session_expired" if token in self._gone else "unknown_session")
        if runner.over.done():
            raise ProtocolError("session_expired")
        return runner

    def transcript(self, name: str) -> Transcript | None:
        """The captions of a session that lives, or that ended not long ago."""
        runner = self._by_name.get(name)
        if runner is not None:
            return runner.session.transcript
        self._forget(time.monotonic())
        ended = self._transcripts.get(name)
        return ended[1] if ended is not None else None

    def resumed(self, runner: Runner) -> None:
        """A session has another connection."""
        expiry = self._waiting.pop(runner, None)
        if expiry is not None:
            expiry.cancel()
        self._metrics.resumed()

    async def left(self, runner: Runner, why: str, *, lost: bool) -> None:
        """The connection of a session is over; `lost` if its client did not close it."""
        finished = runner.ended is not None
        if finished:
            # The client may not have its last messages yet.
            lost = runner.ended != "internal" and len(self._waiting) < _FINISHED_KEPT
        if not lost or not runner.session.resumable:
            await self.close(runner, why)
            return
        if finished:
            runner.abandon()
            self._settle(runner)
        self._waiting[runner] = asyncio.create_task(self._expire(runner))

    async def close(self, runner: Runner, why: str) -> None:
        """End a session for good."""
        expiry = self._waiting.pop(runner, None)
        if expiry is not None and expiry is not asyncio.current_task():
            expiry.cancel()
        token = runner.session.token
        if self._by_token.pop(token, None) is not None and runner.session.resumable:
            self._gone[token] = None
            if len(self._gone) > _GONE_KEPT:
                self._gone.popitem(last=False)
        await runner.close(why)
        self._settle(runner)
        session = runner.session
        if self._by_name.pop(session.name, None) is not None and session.transcript.used:
            now = time.monotonic()
            self._transcripts[session.name] = (now, session.transcript)
            self._forget(now)

    def _forget(self, now: float) -> None:
        while self._transcripts:
            ended, _ = next(iter(self._transcripts.values()))
            if len(self._transcripts) <= _TRANSCRIPTS_KEPT and now - ended < _TRANSCRIPT_SECONDS:
                return
            self._transcripts.popitem(last=False)

    async def clear(self) -> None:
        """End all sessions that wait for a connection."""
        waiting, self._waiting = self._waiting, {}
        for runner, expiry in waiting.items():
            expiry.cancel()
            await self.close(runner, "expired")

    async def _expire(self, runner: Runner) -> None:
        await asyncio.sleep(self._resume_seconds)
        await self.close(runner, "expired")

    def _settle(self, runner: Runner) -> None:
        if runner in self.live:
            self.live.remove(runner)
            self._release(runner)
            self._metrics.sessions.dec()
            self._metrics.session_closed(runner.ended or "disconnected")

    def _release(self, runner: Runner) -> None:
        self._clients[runner.client] -= 1
        if not self._clients[runner.client]:
            del self._clients[runner.client]
