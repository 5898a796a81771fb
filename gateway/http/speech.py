"""One utterance through the door, as the bytes of a stream: what all HTTP routes speak with."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Literal

from gateway.client import Audio, Text
from gateway.codecs import CodecMissingError
from gateway.door import Door
from gateway.errors import ERRORS
from gateway.http.sound import Sound
from gateway.link import GatewayError
from gateway.protocol import Caption, Error, FlushDone, TurnCancelled, TurnDone

BAD_REQUEST, NOT_FOUND, TOO_MANY, UNAVAILABLE, SERVER_FAULT = 400, 404, 429, 503, 500
_STATUS = {
    "too_many_sessions": TOO_MANY,
    "too_many_requests": TOO_MANY,
    "quota_exceeded": TOO_MANY,
    "unauthorized": 401,
    "forbidden": 403,
    "origin_not_allowed": 403,
    "capacity": UNAVAILABLE,
    "starting": UNAVAILABLE,
    "draining": UNAVAILABLE,
    "engine_restarting": UNAVAILABLE,
    "engine_stopped": UNAVAILABLE,
    "unknown_voice": NOT_FOUND,
    "bad_field": BAD_REQUEST,
    "bad_json": BAD_REQUEST,
    "bad_speed": BAD_REQUEST,
    "empty_text": BAD_REQUEST,
    "text_too_long": BAD_REQUEST,
    "unpronounceable": BAD_REQUEST,
    "unsupported_language": BAD_REQUEST,
    "unknown_format": BAD_REQUEST,
    "unsupported_format": BAD_REQUEST,
    "unsupported_emotion": BAD_REQUEST,
    "unsupported_parameter": BAD_REQUEST,
    "unknown_parameter": BAD_REQUEST,
    "model_not_found": NOT_FOUND,
    "unknown_url": NOT_FOUND,
    "method_not_allowed": 405,
}


def status_of(code: str) -> int:
    """The HTTP status of an error code."""
    return _STATUS.get(code, SERVER_FAULT)


@dataclass(frozen=True, slots=True)
class Wish:
    """How to speak; see `session.start` in docs/protocol.md."""

    voice: str = "default"
    language: str = "auto"
    speed: float = 1.0
    seed: int | None = None
    style: str = ""
    pace: Literal["listener", "reader", "idle"] = "reader"


Part = bytes | Caption | FlushDone | TurnDone


async def speak(
    door: Door, who: str, text: Text, wish: Wish, sound: Sound, *, captions: bool = False
) -> AsyncGenerator[Part, None]:
    """Bytes of one stream as they are made, captions among them where they belong; the last part is
    `TurnDone`, and the bytes before it end the stream.

    Raises `GatewayError` when nothing can be spoken, and when a piece of the text cannot: what came
    before it was sent, and silence in its place would be a lie. Closing it frees the engine.
    """
    try:
        codec = sound.codec()
    except CodecMissingError as missing:
        raise GatewayError("unsupported_format", str(missing), field="format") from missing
    try:
        async with (
            door.client(
                who,
                pace=wish.pace,
                voice=wish.voice,
                language=wish.language,
                speed=wish.speed,
                seed=wish.seed,
                style=wish.style or None,
                format=sound.wire,
                sample_rate=None if sound.wire == "ogg_opus" else sound.rate,
                bitrate=sound.bitrate,
                captions=captions,
            ) as client,
            contextlib.aclosing(client.speak(text)) as events,
        ):
            delay = int(client.started.audio["pre_skip"]) * sound.rate // 24_000
            skip = delay * sound.sample_bytes
            async for event in events:
                if isinstance(event, Audio):
                    payload = event.payload[skip:]
                    skip = max(0, skip - len(event.payload))
                    if data := codec.feed(payload):
                        yield data
                elif isinstance(event, Error):
                    raise GatewayError(event.code, event.message)
                elif isinstance(event, TurnCancelled):
                    raise GatewayError("draining", ERRORS["draining"].meaning)
                elif isinstance(event, TurnDone) and event.samples:
                    if data := codec.finish():
                        yield data
                    yield event
                    return
                elif isinstance(event, Caption | FlushDone):
                    yield event
            raise GatewayError("empty_text", ERRORS["empty_text"].meaning)
    finally:
        codec.close()
