"""ElevenLabs' text-to-speech API over HTTP; its WebSockets are in `elevenlabs_sockets`."""

from __future__ import annotations

import base64
import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from engine.api import SAMPLE_RATE, Voice
from gateway.door import Door
from gateway.http import styles
from gateway.http.alignment import Characters, spoken, written
from gateway.http.health import json_response
from gateway.http.replies import SpeechResponse, read_body, retry_headers
from gateway.http.sound import ELEVENLABS, Sound
from gateway.http.speech import Part, Wish, speak, status_of
from gateway.link import GatewayError
from gateway.protocol import Caption, TurnDone

MODEL = "voxgate"
MODELS = (
    MODEL,
    "eleven_flash_v2_5",
    "eleven_turbo_v2_5",
    "eleven_multilingual_v2",
    "eleven_flash_v2",
    "eleven_turbo_v2",
    "eleven_multilingual_v1",
    "eleven_monolingual_v1",
    "eleven_v3",
)
"""All are the one model served; clients insist on the names they know."""
DEFAULT_FORMAT = "mp3_44100_128"
LINES = "application/x-ndjson"
_LANGUAGES = {"en": "en", "eng": "en", "zh": "zh", "cmn": "zh", "zho": "zh", "chi": "zh"}
_NAMES = {"en": "English", "zh": "Chinese"}
_INVALID = ("bad_field", "bad_json", "unknown_format")
_DETAILS = {
    "unknown_voice": ("not_found", "voice_not_found"),
    "model_not_found": ("validation_error", "model_not_found"),
    "text_too_long": ("validation_error", "max_character_limit_exceeded"),
    "bad_speed": ("validation_error", "invalid_voice_settings"),
    "capacity": ("rate_limit_error", "system_busy"),
    "too_many_sessions": ("rate_limit_error", "concurrent_limit_exceeded"),
}
"""Type and code of theirs for our codes; others keep their own."""
_STATUS = {"model_not_found": 400, "capacity": 429}
WITHOUT_EFFECT = ("stability", "similarity_boost", "use_speaker_boost")
"""Settings that turn knobs of their models; answers say that they were left out."""


class VoiceSettings(BaseModel):
    """How a voice is to speak; these voices know `speed`."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)

    speed: float | None = None
    style: float | None = None
    stability: float | None = None
    similarity_boost: float | None = None
    use_speaker_boost: bool | None = None


class SpeechBody(BaseModel):
    """The body of all `POST /v1/text-to-speech/...`."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)

    text: str
    model_id: str | None = None
    language_code: str | None = None
    voice_settings: VoiceSettings | None = None
    seed: Annotated[int, Field(ge=0, lt=2**32)] | None = None
    pronunciation_dictionary_locators: list[dict[str, Any]] | None = None
    apply_text_normalization: str | None = None


def wish_of(
    voice: str,
    model: str | None,
    language: str | None,
    settings: VoiceSettings | None,
    seed: int | None = None,
    *,
    offered: Sequence[str] = (),
    dictionaries: object = None,
    normalization: str | None = None,
) -> Wish:
    """Raises `GatewayError` for what would be heard and cannot be done. `offered`: the styles."""
    if model is not None and model not in MODELS:
        raise GatewayError(
            "model_not_found", f"A model with model ID {model} does not exist.", field="model_id"
        )
    spoken_in = "auto"
    if language:
        code = language.lower().replace("_", "-").split("-")[0]
        if code not in _LANGUAGES:
            message = f"The language {language!r} cannot be spoken; these can: en, zh."
            raise GatewayError("unsupported_language", message, field="language_code")
        spoken_in = _LANGUAGES[code]
    if dictionaries:
        message = "This server has no pronunciation dictionaries."
        raise GatewayError(
            "unsupported_parameter", message, field="pronunciation_dictionary_locators"
        )
    if normalization == "off":
        raise GatewayError(
            "unsupported_parameter",
            "Text is always normalised here.",
            field="apply_text_normalization",
        )
    style = ""
    if settings is not None and settings.style:
        style = styles.of_amount(settings.style, offered) or ""
        if not style:
            message = "The voices of this server have no style."
            raise GatewayError("unsupported_parameter", message, field="voice_settings.style")
    speed = 1.0 if settings is None or settings.speed is None else settings.speed
    return Wish(voice=voice, language=spoken_in, speed=speed, seed=seed, style=style)


def without_effect(settings: VoiceSettings | None) -> dict[str, str]:
    """A header that names the settings given and not used."""
    if settings is None:
        return {}
    given = [name for name in WITHOUT_EFFECT if getattr(settings, name) is not None]
    return {"x-voxgate-ignored": ", ".join(given)} if given else {}


def sound_of(query: Mapping[str, str]) -> Sound:
    """The `output_format`. Raises `GatewayError`."""
    name = query.get("output_format", DEFAULT_FORMAT)
    sound = ELEVENLABS.get(name)
    if sound is None:
        message = f"output_format {name!r} is not made here; these are: {', '.join(ELEVENLABS)}."
        raise GatewayError("unknown_format", message, field="output_format")
    return sound


def detail_of(failure: GatewayError) -> dict[str, Any]:
    """What is in `detail` of a refused request."""
    status = _STATUS.get(failure.code) or status_of(failure.code)
    kind = "validation_error" if status < 500 else "internal_server_error"
    kind, code = _DETAILS.get(failure.code, (kind, failure.code))
    return {
        "type": kind,
        "code": code,
        "message": failure.message,
        "status": code,
        "request_id": secrets.token_hex(16),
        "param": failure.field,
    }


def error_reply(failure: GatewayError) -> Response:
    """A failure in ElevenLabs' shape: for a malformed request a list of fields."""
    if failure.code in _INVALID:
        where = (failure.field or "body").split(".")
        place = ["query", *where] if failure.code == "unknown_format" else ["body", *where]
        item = {"loc": place, "msg": failure.message, "type": "value_error"}
        return json_response(422, {"detail": [item]})
    status = _STATUS.get(failure.code) or status_of(failure.code)
    detail = detail_of(failure)
    headers = {"request-id": detail["request_id"], **retry_headers(failure)}
    return json_response(status, {"detail": detail}, headers)


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
        )
        parts = speak(door, door.who(request), body.text, wish, sound, captions=captions)
        return parts, sound, without_effect(body.voice_settings)

    # -- what there is ---------------------------------------------------------------------------

    def _all_voices(self) -> list[dict[str, Any]]:
        default = Voice(
            "default",
            "Default",
            tuple(_NAMES),
            description="Chooses the voice by the language of each piece of text.",
        )
        return [_voice(voice) for voice in (default, *self._door.voices)]

    async def voices(self, _: Request) -> Response:
        """`GET /v1/voices`."""
        return json_response(200, {"voices": self._all_voices()})

    async def voice(self, request: Request) -> Response:
        """`GET /v1/voices/{voice_id}`."""
        id = request.path_params["voice_id"]
        for voice in self._all_voices():
            if voice["voice_id"] == id:
                return json_response(200, voice)
        message = f"A voice with the voice_id {id} was not found."
        return error_reply(GatewayError("unknown_voice", message, field="voice_id"))

    async def search(self, request: Request) -> Response:
        """`GET /v2/voices`: `search`, `voice_ids`, `page_size` (1 to 100) and `next_page_token`."""
        query = request.query_params
        size, token = query.get("page_size", "10"), query.get("next_page_token", "0")
        if not (size.isascii() and size.isdigit() and 1 <= int(size) <= 100):
            message = "page_size is a number from 1 to 100"
            return error_reply(GatewayError("bad_field", message, field="page_size"))
        if not (token.isascii() and token.isdigit() and len(token) < 10):
            message = "next_page_token was not given by this server"
            return error_reply(GatewayError("bad_field", message, field="next_page_token"))
        term, ids = query.get("search", "").lower(), query.getlist("voice_ids")
        found = [
            voice
            for voice in self._all_voices()
            if (not ids or voice["voice_id"] in ids)
            and term in orjson.dumps(voice).decode().lower()
        ]
        end = int(token) + int(size)
        body = {
            "voices": found[int(token) : end],
            "has_more": end < len(found),
            "total_count": len(found),
            "next_page_token": str(end) if end < len(found) else None,
        }
        return json_response(200, body)

    async def models(self, _: Request) -> Response:
        """`GET /v1/models` for clients of ElevenLabs."""
        limit = self._door.settings.max_request_chars
        models = [_model(name, limit) for name in MODELS]
        return Response(orjson.dumps(models), media_type="application/json")


def asks(request: Request) -> bool:
    """Whether a request is that of a client of ElevenLabs, where others have the same path."""
    headers = request.headers
    return "xi-api-key" in headers or "elevenlabs" in headers.get("x-fern-sdk-name", "")


def _voice(voice: Voice) -> dict[str, Any]:
    labels = {"gender": voice.gender} if voice.gender != "unknown" else {}
    return {
        "voice_id": voice.id,
        "name": voice.name,
        "category": "premade",
        "description": voice.description or None,
        "labels": labels | {"language": ", ".join(voice.languages)},
        "preview_url": None,
        "available_for_tiers": [],
        "high_quality_base_model_ids": list(MODELS),
        "verified_languages": [
            {"language": language, "model_id": MODEL} for language in voice.languages
        ],
    }


def _model(name: str, limit: int) -> dict[str, Any]:
    return {
        "model_id": name,
        "name": name,
        "can_be_finetuned": False,
        "can_do_text_to_speech": True,
        "can_do_voice_conversion": False,
        "can_use_style": False,
        "can_use_speaker_boost": False,
        "serves_pro_voices": False,
        "token_cost_factor": 0.0,
        "description": "The speech model of this server.",
        "requires_alpha_access": False,
        "maximum_text_length_per_request": limit,
        "languages": [{"language_id": id, "name": called} for id, called in _NAMES.items()],
        "concurrency_group": "standard",
    }


class Timed:
    """Audio and the times of characters, as they come to pass.

    The times of a piece are known when the next one begins, so they travel with its first audio;
    until then clients have the sound.
    """

    def __init__(self) -> None:
        self._open: Caption | None = None
        self._audio = bytearray()
        self._known: list[tuple[Characters, Characters]] = []

    def hear(self, part: Part) -> tuple[Characters, Characters] | None:
        """The times that a part makes known: of the text as written, and as said."""
        if not isinstance(part, Caption | TurnDone):
            return None
        ended, self._open = self._open, None
        if isinstance(part, Caption):
            until = part.start_sample or 0
            if part.final:
                self._open = part
        else:
            until = part.samples
        if ended is None:
            return None
        until = max(until, ended.end_sample or 0)
        return written(ended, until), spoken(ended, until)

    def line(self, part: Part) -> bytes:
        """A line of a stream, or nothing."""
        known = self.hear(part)
        if known is not None:
            self._known.append(known)
        if isinstance(part, bytes) or (isinstance(part, TurnDone) and self._known):
            audio = part if isinstance(part, bytes) else b""
            known_now, self._known = self._known, []
            return _timed_json(audio, known_now) + b"\n"
        return b""

    def whole(self, part: Part) -> bytes:
        """The one JSON object, with the last part."""
        known = self.hear(part)
        if known is not None:
            self._known.append(known)
        if isinstance(part, bytes):
            self._audio += part
        return _timed_json(bytes(self._audio), self._known) if isinstance(part, TurnDone) else b""


def _timed_json(audio: bytes, known: Sequence[tuple[Characters, Characters]]) -> bytes:
    return orjson.dumps(
        {
            "audio_base64": base64.b64encode(audio).decode(),
            "alignment": _seconds([times for times, _ in known]),
            "normalized_alignment": _seconds([times for _, times in known]),
        }
    )


def _seconds(pieces: Sequence[Characters]) -> dict[str, Any] | None:
    if not pieces:
        return None
    return {
        "characters": [each for piece in pieces for each in piece.characters],
        "character_start_times_seconds": [
            round(at / SAMPLE_RATE, 3) for piece in pieces for at in piece.starts
        ],
        "character_end_times_seconds": [
            round(at / SAMPLE_RATE, 3) for piece in pieces for at in piece.ends
        ],
    }
