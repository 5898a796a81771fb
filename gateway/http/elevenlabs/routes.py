"""`POST /v1/text-to-speech/{voice_id}` and what is below it."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from starlette.requests import Request
from starlette.responses import Response

from gateway.door import Door
from gateway.http.elevenlabs.times import Timed
from gateway.http.elevenlabs.wishes import (
    SpeechBody,
    check_query,
    error_reply,
    ignored_header,
    left_out,
    sound_of,
    wish_of,
)
from gateway.http.replies import SpeechResponse, read_body
from gateway.http.sound import Sound
from gateway.http.speech import Part, speak
from gateway.link import GatewayError

LINES = "application/x-ndjson"


class ElevenLabs:
    """The routes."""

    def __init__(self, door: Door) -> None:
        self._door = door

    async def convert(self, request: Request) -> Response:
        """`POST /v1/text-to-speech/{voice_id}` and `.../stream`."""
        try:
            parts, sound, headers = await self._begin(request, captions=False)
        except GatewayError as failure:
            return error_reply(failure)
        return SpeechResponse(parts, sound.media_type, error_reply, headers=headers)

    async def stream_with_timestamps(self, request: Request) -> Response:
        """`POST /v1/text-to-speech/{voice_id}/stream/with-timestamps`: a JSON object a line."""
        try:
            parts, _, headers = await self._begin(request, captions=True)
        except GatewayError as failure:
            return error_reply(failure)
        timed = Timed()
        return SpeechResponse(parts, LINES, error_reply, wrap=timed.line, headers=headers)

    async def with_timestamps(self, request: Request) -> Response:
        """`POST /v1/text-to-speech/{voice_id}/with-timestamps`: all in one JSON object."""
        try:
            parts, _, headers = await self._begin(request, captions=True)
        except GatewayError as failure:
            return error_reply(failure)
        timed = Timed()
        return SpeechResponse(
            parts, "application/json", error_reply, wrap=timed.whole, headers=headers
        )

    async def _begin(
        self, request: Request, *, captions: bool
    ) -> tuple[AsyncGenerator[Part, None], Sound, dict[str, str]]:
        door = self._door
        door.let_in(request)
        sound = sound_of(request.query_params)
        ignored = check_query(request.query_params, bool(door.settings.record_dir))
        body = await read_body(request, SpeechBody, door.settings.max_message_bytes)
        limit = door.settings.max_request_chars
        if len(body.text) > limit:
            message = (
                f"This request's text has {len(body.text)} characters and exceeds the character "
                f"limit of {limit} characters."
            )
            raise GatewayError("text_too_long", message, field="text")
        wish = wish_of(
            request.path_params["voice_id"],
            body.model_id,
            body.language_code,
            body.voice_settings,
            body.seed,
            offered=door.limits.styles,
            dictionaries=body.pronunciation_dictionary_locators,
            normalization=body.apply_text_normalization,
            effects=body.audio_effects,
        )
        ignored += left_out(body, body.voice_settings)
        parts = speak(door, door.who(request), body.text, wish, sound, captions=captions)
        return parts, sound, ignored_header(ignored)
