"""One stream of text of ElevenLabs' sockets, spoken by a session of its own."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

from engine.api import SAMPLE_RATE
from gateway.client import Flush
from gateway.http.elevenlabs.alignment import Characters
from gateway.http.elevenlabs.schedule import Schedule
from gateway.http.elevenlabs.times import Timed
from gateway.http.speech import Part
from gateway.link import GatewayError
from gateway.protocol import FlushDone

_MOST_FLUSHES = 32
"""Not yet answered; a session takes 64."""
Emit = Callable[[dict[str, Any]], Awaitable[None]]


class Context:
    """One stream of text being spoken. `emit` sends a message about it."""

    def __init__(
        self,
        speech: Callable[[AsyncGenerator[str | Flush, None]], AsyncGenerator[Part, None]],
        schedule: Schedule,
        emit: Emit,
        ignored: Sequence[str] = (),
    ) -> None:
        """`speech` speaks a stream of text. `ignored`: what was asked for and is not heard, which
        the first message tells."""
        self._schedule = schedule
        self._emit = emit
        self._ignored = list(ignored)
        self._text: asyncio.Queue[str | Flush | None] = asyncio.Queue()
        self._flushes = 0
        self._unflushed = False
        self._begun = False
        self._parts = speech(self._texts())
        self.task = asyncio.create_task(self._run())

    def write(self, text: str, *, flush: bool = False, trigger: bool = False) -> None:
        """More text. White space before the first word does nothing."""
        if not self._begun and not text.strip():
            text = ""
        self._begun = self._begun or bool(text)
        if text:
            self._unflushed = True
        for item in self._schedule.feed(text, flush=flush, trigger=trigger):
            self._text.put_nowait(item)
            if isinstance(item, Flush):
                self._unflushed = False

    def end(self) -> None:
        """No more text; the rest is spoken."""
        for item in self._schedule.feed("", flush=True):
            self._text.put_nowait(item)
        self._text.put_nowait(None)

    def close(self) -> None:
        """Speak on if all was flushed, else stop at once."""
        if self._begun and not self._unflushed:
            self.end()
        else:
            self.task.cancel()

    def _told(self) -> dict[str, Any]:
        ignored, self._ignored = self._ignored, []
        return {"ignored": ignored} if ignored else {}

    async def _texts(self) -> AsyncGenerator[str | Flush, None]:
        while (item := await self._text.get()) is not None:
            if isinstance(item, Flush):
                if not self._begun or self._flushes >= _MOST_FLUSHES:
                    continue
                self._flushes += 1
            yield item

    async def _run(self) -> None:
        timed, known = Timed(), list[tuple[Characters, Characters]]()
        async with contextlib.aclosing(self._parts) as parts:
            try:
                async for part in parts:
                    times = timed.hear(part)
                    if times is not None:
                        known.append(times)
                    if isinstance(part, bytes):
                        await self._emit(_audio(part, known) | self._told())
                        known.clear()
                    elif isinstance(part, FlushDone):
                        self._flushes -= 1
            except GatewayError as failure:
                # A context that was never given a word just ends.
                if self._begun or failure.code != "empty_text":
                    raise
        if known:
            await self._emit(_audio(b"", known))


def _audio(data: bytes, known: list[tuple[Characters, Characters]]) -> dict[str, Any]:
    return {
        "audio": base64.b64encode(data).decode(),
        "isFinal": None,
        "normalizedAlignment": _times([said for _, said in known]),
        "alignment": _times([text for text, _ in known]),
    }


def _times(pieces: list[Characters]) -> dict[str, Any] | None:
    """Milliseconds from the beginning of the first piece."""
    pieces = [piece for piece in pieces if piece.characters]
    if not pieces:
        return None
    zero = pieces[0].starts[0]

    def ms(sample: int) -> int:
        return (sample - zero) * 1000 // SAMPLE_RATE

    times = [time for piece in pieces for time in zip(piece.starts, piece.ends, strict=True)]
    return {
        "chars": [each for piece in pieces for each in piece.characters],
        "charStartTimesMs": [ms(start) for start, _ in times],
        "charDurationsMs": [ms(end) - ms(start) for start, end in times],
    }
