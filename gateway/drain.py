"""How a server stops: nobody new, those who are there are spoken to their end, the rest is told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from typing import Protocol

from gateway.protocol import ServerDraining
from gateway.runner import Runner
from gateway.sessions import Sessions
from gateway.settings import Settings

_LOOK_SECONDS = 0.05
_GRACE_SECONDS = 2.0
"""For the messages that tell what was not heard."""


class Watched(Protocol):
    """A connection, as far as draining looks at it."""

    over: asyncio.Future[None]


async def drain(sessions: Sessions, connections: Collection[Watched], settings: Settings) -> None:
    """Returns when every session is over, at the latest `_GRACE_SECONDS` after the deadline.

    Sessions that lost their connection are waited for too, for `drain_resume_seconds`: their
    clients are on the way back. At the deadline clients learn what was not heard.
    """
    deadline = time.monotonic() + settings.drain_seconds
    notice = ServerDraining(
        deadline_ms=int(settings.drain_seconds * 1000),
        retry_after_ms=settings.retry_after_ms,
        url=settings.drain_url or None,
    )
    for runner in list(sessions.live):
        runner.drain(notice)
    await _until(deadline, sessions, connections, settings.drain_resume_seconds)
    if sessions.live:
        for runner in list(sessions.live):
            runner.hurry()
        await _until(time.monotonic() + _GRACE_SECONDS, sessions, connections, 0.0)
    await sessions.clear()


async def _until(
    deadline: float, sessions: Sessions, connections: Collection[Watched], patience: float
) -> None:
    alone: dict[Runner, float] = {}
    while (now := time.monotonic()) < deadline:
        for runner in sessions.waiting:
            if now - alone.setdefault(runner, now) >= patience:
                await sessions.close(runner, "expired")
        running = [connection.over for connection in connections]
        if not running and not sessions.waiting:
            return
        if running:
            await asyncio.wait(
                running, timeout=min(_LOOK_SECONDS, deadline - now), return_when="FIRST_COMPLETED"
            )
        else:
            await asyncio.sleep(min(_LOOK_SECONDS, deadline - now))
