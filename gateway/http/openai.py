"""OpenAI's speech API: `POST /v1/audio/speech`, `GET /v1/models`, `GET /v1/audio/voices`."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from engine.api import SAMPLES_PER_FRAME, Voice
from gateway.door import Door
from gateway.http import styles
from gateway.http.health import json_response
from gateway.http.replies import SpeechResponse, read_body, retry_headers, server_sent
from gateway.http.sound import OPENAI
from gateway.http.speech import Part, Wish, speak, status_of
from gateway.link import GatewayError
from gateway.protocol import TurnDone

MODEL = "voxgate"
MODELS = (MODEL, "tts-1", "tts-1-hd", "gpt-4o-mini-tts")
"""All are the one model served; clients insist on the names they know."""
_CREATED = 1_764_547_200
DEFAULT_ALIAS = "alloy"
FEMALE = ("nova", "shimmer", "coral", "sage", "ballad", "fable", "marin")
MALE = ("echo", "onyx", "ash", "verse", "cedar")
_CODES = {
    "unknown_voice": "voice_not_found",
    "text_too_long": "string_above_max_length",
    "empty_text": "empty_string",
    "bad_field": "invalid_value",
    "bad_speed": "invalid_value",
    "capacity": "server_overloaded",
    "too_many_sessions": "rate_limit_exceeded",
}
"""What OpenAI calls our errors; others keep their own names."""


class VoiceId(BaseModel):
    """How OpenAI names a voice that is not one of its own."""

    model_config = ConfigDict(strict=True)

    id: str


class SpeechBody(BaseModel):
    """The body of `POST /v1/audio/speech`."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    model: str
    input: Annotated[str, Field(min_length=1)]
    voice: str | VoiceId = DEFAULT_ALIAS
    instructions: str | None = None
    response_format: Literal["mp3", "opus", "aac", "flac", "wav", "pcm"] = "mp3"
    speed: Annotated[float, Field(ge=0.25, le=4.0)] = 1.0
    stream_format: Literal["audio", "sse"] = "audio"


def aliases(voices: Sequence[Voice]) -> dict[str, str]:
    """OpenAI's voices by those there are: the neutral one is the default, others go by gender."""
    found = {DEFAULT_ALIAS: "default"}
    for names, gender in ((FEMALE, "female"), (MALE, "male")):
        fitting = [voice.id for voice in voices if voice.gender == gender]
        fitting = fitting or [voice.id for voice in voices] or ["default"]
        found |= {name: fitting[at % len(fitting)] for at, name in enumerate(names)}
    own = {voice.id for voice in voices}
    return {name: voice for name, voice in found.items() if name not in own}


def error_reply(failure: GatewayError) -> Response:
    """A failure in OpenAI's shape."""
    status = 400 if failure.code == "unknown_voice" else status_of(failure.code)
    kind = "invalid_request_error" if status < 500 else "server_error"
    if status == 429:
        kind = "rate_limit_error"
    message = failure.message
    if failure.available:
        message += f" Supported values are: {', '.join(map(repr, failure.available))}."
    body = {
        "error": {
            "message": message,
            "type": kind,
            # A voice may be named in two ways, which is nobody's business.
            "param": failure.field.split(".")[0] if failure.field else None,
            "code": _CODES.get(failure.code, failure.code),
        }
    }
    return json_response(status, body, retry_headers(failure))


class OpenAi:
    """The routes."""

    def __init__(self, door: Door) -> None:
        self._door = door

    async def speech(self, request: Request) -> Response:
        """`POST /v1/audio/speech`."""
        try:
            self._door.let_in(request)
            body = await read_body(request, SpeechBody, self._door.settings.max_message_bytes)
            wish = self._wish(body)
        except GatewayError as failure:
            return error_reply(failure)
        sound = OPENAI[body.response_format]
        parts = speak(self._door, self._door.who(request), body.input, wish, sound)
        if body.stream_format == "audio":
            return SpeechResponse(parts, sound.media_type, error_reply)
        return SpeechResponse(
            parts,
            "text/event-stream",
            error_reply,
            wrap=lambda part: _event(part, len(body.input)),
            broken=lambda failure: server_sent(
                {"type": "error", "error": {"code": failure.code, "message": failure.message}}
            ),
        )

    def _wish(self, body: SpeechBody) -> Wish:
        if not body.model.startswith(MODELS):
            raise GatewayError(
                "model_not_found",
                f"The model `{body.model}` does not exist or you do not have access to it.",
                field="model",
                available=list(MODELS),
            )
        style = ""
        if body.instructions and body.instructions.strip():
            style = styles.of_instructions(body.instructions, self._door.limits.styles) or ""
            if not style:
                raise GatewayError(
                    "unsupported_parameter",
                    "The voices of this server can do nothing of this.",
                    field="instructions",
                    available=styles.emotions(self._door.limits.styles),
                )
        limit = self._door.settings.max_request_chars
        if len(body.input) > limit:
            raise GatewayError(
                "text_too_long",
                f"Invalid 'input': string too long. Expected a string with maximum length {limit}, "
                f"but got a string with length {len(body.input)} instead.",
                field="input",
            )
        named = body.voice if isinstance(body.voice, str) else body.voice.id
        known = aliases(self._door.voices)
        return Wish(voice=known.get(named, named), speed=body.speed, style=style)

    async def models(self, _: Request) -> Response:
        """`GET /v1/models`."""
        return json_response(200, {"object": "list", "data": [_model(name) for name in MODELS]})

    async def model(self, request: Request) -> Response:
        """`GET /v1/models/{model}`."""
        name = request.path_params["model"]
        if name in MODELS:
            return json_response(200, _model(name))
        return error_reply(
            GatewayError("model_not_found", f"The model '{name}' does not exist.", field="model")
        )

    async def voices(self, _: Request) -> Response:
        """`GET /v1/audio/voices`: ids and names, as Open WebUI and others read them."""
        voices = [{"id": voice.id, "name": voice.name} for voice in self._door.voices]
        named = aliases(self._door.voices)
        voices += [{"id": name, "name": f"{name} ({voice})"} for name, voice in named.items()]
        return json_response(200, {"object": "list", "voices": voices})


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": _CREATED, "owned_by": MODEL}


def _event(part: Part, characters: int) -> bytes:
    if isinstance(part, bytes):
        audio = base64.b64encode(part).decode()
        return server_sent({"type": "speech.audio.delta", "audio": audio})
    if isinstance(part, TurnDone):
        frames = -(-part.samples // SAMPLES_PER_FRAME)
        usage = {
            "input_tokens": characters,
            "output_tokens": frames,
            "total_tokens": characters + frames,
        }
        return server_sent({"type": "speech.audio.done", "usage": usage})
    return b""
