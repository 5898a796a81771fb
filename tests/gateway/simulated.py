"""A gateway in simulated time: real sessions and connections, no sockets, no waiting.

`Loop` jumps from one timer to the next, so that a minute of load takes as long as its work.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from fake_engine import LIMITS, VOICES, tone

from engine.api import (
    SAMPLE_RATE,
    SAMPLES_PER_FRAME,
    AudioChunk,
    EngineLimits,
    EngineStats,
    Progress,
    SpeechRequest,
    Voice,
)
from engine.chunking import ChunkPolicy, Listener
from engine.lead import Leads, Standing
from gateway.protocol import unpack_audio
from gateway.transport import EXTENSION


class Loop(asyncio.SelectorEventLoop):
    """Time stands still while there is work, and jumps to the next timer when there is none."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 1000.0

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self._now = max(self._now, self._scheduled[0]._when)  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


@dataclass(slots=True)
class _Piece:
    priority: int
    frames: int = 0
    taken: int = 0
    made: asyncio.Queue[None] = field(default_factory=asyncio.Queue)


class BoundedEngine:
    """An engine whose step takes `a + b n` milliseconds and gives each of `n` pieces one frame.

    Pieces of listeners far ahead rest while others are in a hurry. Speaks 14 characters a second.
    """

    def __init__(self, a: float, b: float, *, rests: bool = True, counts: bool = True) -> None:
        """`counts`: it tells of its steps and frames."""
        self.a, self.b = a, b
        self._rests, self._counts = rests, counts
        self._steps = self._frames = 0
        self._pieces: dict[str, _Piece] = {}
        self._number = 0
        self._stepping: asyncio.Task[None] | None = None
        self._leads = Leads()
        self.state = "stopped"

    @property
    def gapless(self) -> float:
        """Streams it carries at most."""
        return (1000 * SAMPLES_PER_FRAME / SAMPLE_RATE - self.a) / self.b

    async def start(self, progress: Progress | None = None) -> None:
        self.state = "ready"

    async def close(self) -> None:
        self.state = "stopped"

    def voices(self) -> Sequence[Voice]:
        return VOICES

    def voice_files(self) -> Sequence[Path]:
        return ()

    async def reload_voices(self) -> None:
        """There are no others."""

    @property
    def limits(self) -> EngineLimits:
        return LIMITS

    def stats(self) -> EngineStats:
        stats = EngineStats(state=self.state, running=len(self._pieces))
        return replace(stats, steps=self._steps, frames=self._frames) if self._counts else stats

    async def _step(self) -> None:
        loop = asyncio.get_running_loop()
        while self._pieces:
            standings = [
                Standing(name, piece.priority, piece.frames) for name, piece in self._pieces.items()
            ]
            resting = self._leads.resting(standings, False, loop.time())
            if not self._rests:
                resting = set()
            inside = [piece for name, piece in self._pieces.items() if name not in resting]
            self._steps += 1
            self._frames += len(inside)
            await asyncio.sleep((self.a + self.b * len(inside)) / 1000)
            for piece in inside:
                piece.frames += 1
                piece.made.put_nowait(None)
        self._stepping = None

    async def speak(self, request: SpeechRequest) -> AsyncGenerator[AudioChunk, None]:
        name, self._number = str(self._number), self._number + 1
        left = max(8, int(len(request.text) / 14 * SAMPLE_RATE / SAMPLES_PER_FRAME))
        piece = self._pieces[name] = _Piece(request.priority)
        loop, listener, policy = asyncio.get_running_loop(), Listener(), ChunkPolicy()
        if self._stepping is None:
            self._stepping = asyncio.create_task(self._step())
        try:
            while left:
                lead = listener.lead(loop.time())
                made = min(policy.wanted(piece.taken, listener.heard, lead), left)
                for _ in range(made):
                    await piece.made.get()
                piece.taken += made
                left -= made
                if not left:
                    del self._pieces[name]
                audio = tone(made * SAMPLES_PER_FRAME)
                listener.hand_out(audio, loop.time())
                yield AudioChunk(audio)
            yield AudioChunk(np.zeros(0, np.float32), final=True, context=("context", name))
        finally:
            self._pieces.pop(name, None)


class Refused(Exception):
    """The handshake was answered with HTTP."""

    def __init__(self, status: int, headers: dict[str, str], body: dict[str, Any]) -> None:
        super().__init__(status)
        self.status, self.headers, self.body = status, headers, body


class Socket:
    """The client's end of a WebSocket to an ASGI application."""

    def __init__(self, app: Any, client: str) -> None:
        self._down: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._up: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._up.put_nowait({"type": "websocket.connect"})
        scope = {
            "type": "websocket",
            "path": "/v1/stream",
            "query_string": b"",
            "headers": [],
            "client": (client, 1),
            "subprotocols": [],
            "extensions": {"websocket.http.response": {}, EXTENSION: self._fail},
        }
        self._app = asyncio.create_task(app(scope, self._up.get, self._down.put))

    def _fail(self, code: int, reason: str) -> None:
        self._down.put_nowait({"type": "websocket.close", "code": code, "reason": reason})
        self._up.put_nowait({"type": "websocket.disconnect", "code": code})

    async def open(self) -> None:
        """Raises `Refused`."""
        first = await self._down.get()
        if first["type"] == "websocket.accept":
            return
        body = await self._down.get()
        await self._app
        headers = {name.decode(): value.decode() for name, value in first["headers"]}
        raise Refused(first["status"], headers, json.loads(body["body"]))

    def send(self, type: str, **values: Any) -> None:
        self._up.put_nowait(
            {"type": "websocket.receive", "text": json.dumps({"type": type, **values})}
        )

    async def receive(self) -> dict[str, Any] | int:
        """A message, or the samples of an audio packet. Raises `ConnectionError` at the end."""
        message = await self._down.get()
        if message["type"] == "websocket.close":
            raise ConnectionError(message["code"], message["reason"])
        if message.get("bytes") is not None:
            return unpack_audio(message["bytes"])[0].samples
        parsed: dict[str, Any] = json.loads(message["text"])
        return parsed

    async def close(self) -> None:
        self._up.put_nowait({"type": "websocket.disconnect", "code": 1000})
        await self._app
