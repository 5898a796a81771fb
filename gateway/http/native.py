"""`POST /tts`: one text in, one stream of audio out, in the format that `Accept` asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from engine.api import Voice
from gateway.door import Door
from gateway.errors import ERRORS
from gateway.http import styles
from gateway.http.health import json_response
from gateway.http.replies import SpeechResponse, read_body, retry_headers
from gateway.http.sound import NATIVE, Sound
from gateway.http.speech import Wish, speak, status_of
from gateway.link import GatewayError

_ALIASES = {
    "audio/x-wav": "audio/wav",
    "audio/wave": "audio/wav",
    "audio/vnd.wave": "audio/wav",
    "audio/opus": "audio/ogg",
    "application/ogg": "audio/ogg",
    "audio/mp3": "audio/mpeg",
    "audio/mpeg3": "audio/mpeg",
    "audio/x-flac": "audio/flac",
    "audio/aacp": "audio/aac",
    "audio/l16": "audio/pcm",
}
Seed = Annotated[int, Field(ge=0, lt=2**32)]


class TtsBody(BaseModel):
    """The body of `POST /tts`, and a task of `POST /batch_tts`.

    `speaker_id`: the id of a voice, or its place in `GET /v1/audio/voices` from 0.
    """

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    text: str
    speaker_id: str | int = "default"
    emotion: str | None = None
    speed: float = 1.0
    language: str = "auto"
    seed: Seed | None = None


def error_body(failure: GatewayError) -> dict[str, Any]:
    """A failure as the WebSocket tells it: code, message and what to do."""
    kind = ERRORS.get(failure.code)
    body = {
        "code": failure.code,
        "message": failure.message,
        "hint": kind.hint if kind else _HINTS.get(failure.code),
        "field": failure.field,
        "available": failure.available,
        "retry_after_ms": failure.retry_after_ms,
    }
    return {name: value for name, value in body.items() if value is not None}


def error_reply(failure: GatewayError) -> Response:
    return json_response(
        _STATUS.get(failure.code) or status_of(failure.code),
        error_body(failure),
        retry_headers(failure),
    )


_HINTS = {
    "not_acceptable": "Ask for one of `available`.",
    "unknown_url": "GET /openapi.json lists every path.",
    "method_not_allowed": "See `Allow`.",
    "unknown_job": "Make another with POST /batch_tts.",
    "unknown_task": "Tasks count from 0; see the job.",
    "not_ready": "Ask again, or follow the job's events.",
    "unknown_parameter": "Leave it out; GET /openapi.json lists the fields.",
    "unsupported_emotion": "Choose one of `available`.",
}
"""What to do about refusals that the WebSocket does not have."""
_STATUS = {"not_acceptable": 406, "unknown_job": 404, "unknown_task": 404, "not_ready": 409}
_STATUS |= {"job_expired": 410, "too_many_jobs": 429, "text_too_long": 413, "storage_full": 507}


def wish_of(body: TtsBody, voices: Sequence[Voice], offered: Sequence[str], limit: int) -> Wish:
    """Raises `GatewayError` for what these voices, with the styles `offered`, cannot do."""
    if len(body.text) > limit:
        message = f"The text has {len(body.text)} characters; a request takes {limit}."
        raise GatewayError("text_too_long", message, field="text")
    style = styles.of_emotion(body.emotion, offered)
    if style is None:
        raise GatewayError(
            "unsupported_emotion",
            f"The voices of this server have no emotion {(body.emotion or '')[:40]!r}.",
            field="emotion",
            available=styles.emotions(offered),
        )
    speaker = body.speaker_id
    if isinstance(speaker, int):
        if not 0 <= speaker < len(voices):
            raise GatewayError(
                "unknown_voice",
                f"There is no speaker {speaker}; they count from 0 to {len(voices) - 1}.",
                field="speaker_id",
                available=[voice.id for voice in voices],
            )
        speaker = voices[speaker].id
    return Wish(
        voice=speaker, language=body.language, speed=body.speed, seed=body.seed, style=style
    )


def negotiate(accept: str | None) -> Sound:
    """The format of `NATIVE` that an `Accept` header likes best. Raises `GatewayError`."""
    best: tuple[float, int, Sound] | None = None
    for wanted in (accept or "*/*").split(","):
        name, *parameters = (part.strip().lower() for part in wanted.split(";"))
        name = _ALIASES.get(name, name)
        quality = _quality(parameters)
        for place, (media_type, sound) in enumerate(NATIVE.items()):
            if name not in (media_type, "audio/*", "*/*") or not quality:
                continue
            # What is named goes before what a wildcard takes in.
            order = place + (100 if "*" in name else 0)
            if best is None or (quality, -order) > (best[0], -best[1]):
                best = (quality, order, sound)
    if best is None:
        raise GatewayError(
            "not_acceptable",
            "None of the formats in `Accept` is made here.",
            field="accept",
            available=list(NATIVE),
        )
    return best[2]


def _quality(parameters: Sequence[str]) -> float:
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return max(0.0, min(1.0, float(parameter[2:])))
            except ValueError:
                return 0.0
    return 1.0


class Native:
    """The route."""

    def __init__(self, door: Door) -> None:
        self._door = door

    async def tts(self, request: Request) -> Response:
        """`POST /tts`."""
        door = self._door
        try:
            self._door.let_in(request)
            sound = negotiate(request.headers.get("accept"))
            body = await read_body(request, TtsBody, door.settings.max_message_bytes)
            wish = wish_of(body, door.voices, door.limits.styles, door.settings.max_request_chars)
        except GatewayError as failure:
            return error_reply(failure)
        parts = speak(door, door.who(request), body.text, wish, sound)
        return SpeechResponse(parts, sound.media_type, error_reply, headers={"vary": "accept"})
