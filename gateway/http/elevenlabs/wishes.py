"""What ElevenLabs' clients ask for and what becomes of it here; and how they are refused."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from gateway.http import styles
from gateway.http.health import json_response
from gateway.http.replies import retry_headers
from gateway.http.sound import ELEVENLABS, Sound
from gateway.http.speech import Wish, status_of
from gateway.link import GatewayError

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
_LANGUAGES = {"en": "en", "eng": "en", "zh": "zh", "cmn": "zh", "zho": "zh", "chi": "zh"}
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
