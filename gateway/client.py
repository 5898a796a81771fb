"""Async client of `/v1/stream`.

async with VoiceClient("http://127.0.0.1:8080", voice="default") as client:
    async for event in client.speak("Hello, world."):
        if isinstance(event, Audio):
            play(event.payload)
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterable
from dataclasses import dataclass, fields
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit, urlunsplit

import orjson

from gateway import protocol
from gateway.link import GatewayError, Link
from gateway.protocol import (
    AudioFlag,
    Error,
    ServerMessage,
    SessionStarted,
    TurnCancelled,
    TurnDone,
)

__all__ = [
    "FLUSH",
    "Audio",
    "Event",
    "Flush",
    "GatewayError",
    "VoiceClient",
    "read_message",
    "stream_url",
]

_MAX_SLICE = 2_000
_CANCEL = "turn.cancel"


@dataclass(frozen=True, slots=True)
class Audio:
    """One packet. `samples` and `position` count at 24 kHz, pre-skip included.

    `at` is when it arrived, on the clock of `time.perf_counter`.
    """

    payload: bytes
    turn: int
    sequence: int
    position: int
    samples: int
    flags: AudioFlag
    at: float


class Flush:
    """In a stream of text: speak what came so far without waiting for more. See `FLUSH`."""


FLUSH = Flush()
Event = Audio | ServerMessage
Text = str | AsyncIterable[str] | AsyncIterable[str | Flush]
Format = Literal["opus", "pcm_s16le", "mulaw", "alaw", "ogg_opus", "webm_opus"]


class Wire(Protocol):
    """Messages up and down, in order; see `Link`."""

    resumes: int

    async def open(self) -> None: ...
    async def close(self) -> None: ...
    async def send(self, message: dict[str, Any]) -> None: ...
    async def receive(self) -> str | bytes: ...
    def resumable(self, token: str, seconds: float) -> None: ...


class VoiceClient:
    """One session. Turns are spoken one at a time with `speak`; `cancel` may come from any task.

    With `reconnect` the session survives the loss of its connection: events go on where they were,
    none lost and none twice.
    """

    def __init__(
        self,
        url: str,
        *,
        voice: str = "default",
        language: str = "auto",
        speed: float = 1.0,
        seed: int | None = None,
        format: Format = "opus",
        sample_rate: int | None = None,
        frame_ms: int = 20,
        bitrate: int = 32_000,
        complexity: int | None = None,
        fec: bool = False,
        dtx: bool = False,
        style: str | None = None,
        control_tags: bool = False,
        lexicon: dict[str, str] | None = None,
        captions: bool = True,
        live: bool = True,
        reconnect: bool = False,
        api_key: str | None = None,
        link: Wire | None = None,
    ) -> None:
        """`url`: of the gateway, http(s) or ws(s). `api_key`: if it asks for one; left out, that of
        the variable `VOXGATE_API_KEY`. The rest is that of `session.start`, see
        docs/protocol.md. `link` takes the place of a WebSocket.
        """
        self.url = url if link is not None else stream_url(url)
        self.started: SessionStarted
        """The server's answer to `session.start`; set while the session is open."""
        self._start = {
            "voice": voice,
            "language": language,
            "speed": speed,
            "seed": seed,
            "format": format,
            "sample_rate": sample_rate,
            "frame_ms": frame_ms,
            "bitrate": bitrate,
            "complexity": complexity,
            "fec": fec,
            "dtx": dtx,
            "style": style,
            "control_tags": control_tags,
            "lexicon": lexicon,
            "captions": captions,
            "live": live,
            "resume": reconnect or None,
        }
        self.link: Wire = link or Link(self.url, reconnect=reconnect, api_key=api_key)
        self._writable = asyncio.Event()
        self._synced = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None
        self._broken = False
        """Whether the text of this turn raised something."""

    async def __aenter__(self) -> VoiceClient:
        """Raises `GatewayError`: `unreachable`, or the code with which the server refused."""
        await self.link.open()
        try:
            # A server that refuses has closed already, but its reason can still be read.
            with contextlib.suppress(GatewayError):
                await self.send("session.start", **self._start)
            event = await self.receive()
            if not isinstance(event, SessionStarted):
                raise _refusal(event)
        except BaseException:
            await self.link.close()
            raise
        self.started = event
        if event.token is not None:
            self.link.resumable(event.token, event.limits["resume_seconds"])
        self._writable.set()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.link.close()

    async def send(self, type: str, **values: Any) -> None:
        """One client message; fields that are None are left out."""
        await self.link.send({"type": type, **{k: v for k, v in values.items() if v is not None}})

    async def receive(self) -> Event:
        """The next event of whatever turn. Raises `GatewayError` at the end of the session."""
        while True:
            event = self._read(await self.link.receive())
            if event is not None:
                return event

    def _read(self, raw: str | bytes) -> Event | None:
        if isinstance(raw, bytes):
            header, payload = protocol.unpack_audio(raw)
            return Audio(
                payload=payload,
                turn=header.turn,
                sequence=header.sequence,
                position=header.position,
                samples=header.samples,
                flags=AudioFlag(header.flags),
                at=time.perf_counter(),
            )
        message = read_message(raw)
        if isinstance(message, protocol.FlowPause):
            self._writable.clear()
        elif isinstance(message, protocol.FlowResume):
            self._writable.set()
        elif isinstance(message, protocol.Pong):
            self._synced.set()
        elif isinstance(message, Error) and message.fatal and message.code != "draining":
            raise _refusal(message)
        return message

    async def speak(self, text: Text) -> AsyncGenerator[Event, None]:
        """Speak one turn: its audio and captions in order; the last event is `TurnDone` or
        `TurnCancelled`. Errors of single pieces are events too. Nothing comes of empty text.

        Leaving the iteration early (`aclose`) cancels the turn. Raises `GatewayError` when text is
        refused or the session ends, and what an iterator of text raises.
        """
        self._broken = False
        self._writer = writer = asyncio.create_task(self._write(text))
        turn: int | None = None
        over = False
        try:
            while not over:
                event = await self.receive()
                if isinstance(event, protocol.TurnStarted):
                    turn = event.turn
                elif isinstance(event, Error) and event.turn is None:
                    if event.code not in ("no_turn", "draining"):
                        raise _refusal(event)
                    # A cancel that came too late belongs to the turn before; that of a text which
                    # broke before it began ends this one.
                    ours = event.request != _CANCEL or self._broken
                    over = turn is None and event.code == "no_turn" and ours
                if turn is None or getattr(event, "turn", None) != turn:
                    continue
                over = isinstance(event, TurnDone | TurnCancelled)
                yield event
            if self._broken:
                await writer
            elif writer.done() and not writer.cancelled():
                writer.result()
        finally:
            await self._stop_writing()
            if not over:
                with contextlib.suppress(GatewayError):
                    await self._hush()

    async def cancel(self, played_ms: float | None = None) -> None:
        """Stop speaking; `played_ms` is how much of the turn was heard. `speak` then ends with
        `TurnCancelled`.
        """
        await self._stop_writing()
        await self.send(_CANCEL, played_ms=played_ms)

    async def _stop_writing(self) -> None:
        # Text sent after the cancel would open the next turn.
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.gather(self._writer, return_exceptions=True)

    async def _hush(self) -> None:
        """Cancel what is being spoken and wait until the server says so."""
        await self.send(_CANCEL)
        while True:
            event = await self.receive()
            if isinstance(event, TurnCancelled):
                return
            if isinstance(event, Error) and event.request == _CANCEL:
                return

    async def report(self, turn: int, played_ms: float, *, paused: bool = False) -> None:
        """Tell the server what is heard now."""
        await self.send("playback", turn=turn, played_ms=played_ms, paused=paused)

    async def _write(self, text: Text) -> None:
        budget = int(self.started.limits["backlog_chars"]) // 8
        size = min(_MAX_SLICE, int(self.started.limits["append_chars"]), max(1, budget))
        try:
            await self._write_parts(_parts(text, size), budget)
        except Exception:
            self._broken = True
            await self.send(_CANCEL)
            raise
        await self.send("turn.end")

    async def _write_parts(self, parts: AsyncIterable[str | Flush], budget: int) -> None:
        unsynced = 0
        async for part in parts:
            await self._writable.wait()
            if isinstance(part, Flush):
                await self.send("text.flush")
                continue
            await self.send("text.append", text=part)
            unsynced += len(part)
            if unsynced >= budget:
                # A pause that the server asked for has arrived once the pong has.
                self._synced.clear()
                await self.send("ping")
                await self._synced.wait()
                unsynced = 0


async def _parts(text: Text, size: int) -> AsyncGenerator[str | Flush, None]:
    if isinstance(text, str):
        for at in range(0, len(text), size):
            yield text[at : at + size]
        return
    async for part in text:
        if isinstance(part, Flush):
            yield part
            continue
        for at in range(0, len(part), size):
            yield part[at : at + size]


def read_message(raw: str) -> ServerMessage | None:
    """A server message; what this client does not know is left out, so servers may be newer."""
    values = orjson.loads(raw)
    model = protocol.SERVER_MESSAGES.get(values.pop("type", ""))
    if model is None:
        return None
    known = {field.name for field in fields(model)}
    return model(**{name: value for name, value in values.items() if name in known})


def stream_url(url: str) -> str:
    """The WebSocket URL for a server given as http(s) or ws(s), with or without the path.

    Raises `GatewayError`: `bad_url`.
    """
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme) if usable else ""
    if scheme not in ("ws", "wss"):
        raise GatewayError("bad_url", f"{url!r} is no address; use one like http://HOST:8080.")
    path = parts.path if parts.path.strip("/") else protocol.PATH
    return urlunsplit((scheme, parts.netloc, path, parts.query, ""))


def _refusal(event: Event) -> GatewayError:
    if isinstance(event, Error):
        return GatewayError(
            event.code,
            event.message,
            event.retry_after_ms,
            field=event.field,
            available=event.available,
        )
    return GatewayError("unexpected", f"The server sent {type(event).__name__}.")
