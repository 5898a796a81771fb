"""What ElevenLabs' clients ask for and what becomes of it here; and how they are refused."""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Literal

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
IGNORED = "x-voxgate-ignored"
_HEARD_SETTINGS = ("speed", "style")
_HEARD = (
    "text",
    "model_id",
    "language_code",
    "voice_settings",
    "seed",
    "pronunciation_dictionary_locators",
    "apply_text_normalization",
    "audio_effects",
)
_NAME = re.compile(r"[\w.-]{1,40}", re.ASCII)
_MOST_NAMES = 20
_FLAGS = {"true": True, "1": True, "false": False, "0": False}
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class VoiceSettings(BaseModel):
    """How a voice is to speak; these voices know `speed` and, where there are styles, `style`."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

    speed: float | None = None
    style: Share | None = None
    stability: Share | None = None
    similarity_boost: Share | None = None
    use_speaker_boost: bool | None = None


class SpeechBody(BaseModel):
    """The body of all `POST /v1/text-to-speech/...`."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

    text: str
    model_id: str | None = None
    language_code: str | None = None
    voice_settings: VoiceSettings | None = None
    seed: Annotated[int, Field(ge=0, lt=2**32)] | None = None
    pronunciation_dictionary_locators: list[dict[str, Any]] | None = None
    apply_text_normalization: Literal["auto", "on", "off"] | None = None
    apply_language_text_normalization: bool | None = None
    previous_text: str | None = None
    next_text: str | None = None
    previous_request_ids: list[str] | None = None
    next_request_ids: list[str] | None = None
    use_pvc_as_ivc: bool | None = None
    audio_effects: dict[str, Any] | None = None


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
    effects: object = None,
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
    for field, asked, message in (
        ("pronunciation_dictionary_locators", dictionaries, "There are no dictionaries here."),
        ("apply_text_normalization", normalization == "off", "Text is always normalised here."),
        ("audio_effects", effects, "This server has no audio effects."),
    ):
        if asked:
            raise GatewayError("unsupported_parameter", message, field=field)
    style = ""
    if settings is not None and settings.style:
        style = styles.of_amount(settings.style, offered) or ""
        if not style:
            message = "The voices of this server have no style."
            raise GatewayError("unsupported_parameter", message, field="voice_settings.style")
    speed = 1.0 if settings is None or settings.speed is None else settings.speed
    return Wish(voice=voice, language=spoken_in, speed=speed, seed=seed, style=style)


def left_out(
    body: BaseModel, settings: VoiceSettings | None, heard: Collection[str] = _HEARD
) -> list[str]:
    """What was asked for and is not heard: knobs of other models, and what nobody knows."""
    names = [
        name
        for model, known in ((settings, _HEARD_SETTINGS), (body, heard))
        if model is not None
        for name, value in model
        if value and name not in known
    ]
    extra = [*(settings.model_extra or () if settings else ()), *(body.model_extra or ())]
    return [name for name in dict.fromkeys((*names, *extra)) if _NAME.fullmatch(name)][:_MOST_NAMES]


def ignored_header(names: Sequence[str]) -> dict[str, str]:
    return {IGNORED: ", ".join(names)} if names else {}


def check_query(query: Mapping[str, str], recorded: bool) -> list[str]:
    """What of a query is not heard. Raises `GatewayError` for what cannot be honoured. `recorded`:
    whether this server keeps what it speaks."""
    if not flag(query, "enable_logging", default=True) and recorded:
        message = "This server records its sessions, without exception."
        raise GatewayError("unsupported_parameter", message, field="query.enable_logging")
    if flag(query, "enable_ssml_parsing"):
        message = "There is no SSML here; pauses come from punctuation."
        raise GatewayError("unsupported_parameter", message, field="query.enable_ssml_parsing")
    latency = query.get("optimize_streaming_latency", "0")
    if latency not in ("0", "1", "2", "3", "4"):
        message = "optimize_streaming_latency is a number from 0 to 4."
        raise GatewayError("bad_field", message, field="query.optimize_streaming_latency")
    return ["optimize_streaming_latency"] if latency != "0" else []


def flag(query: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    """Raises `GatewayError` for what is neither true nor false."""
    value = query.get(name)
    if value is None:
        return default
    found = _FLAGS.get(value.lower())
    if found is None:
        raise GatewayError("bad_field", f"{name} is true or false.", field=f"query.{name}")
    return found


def sound_of(query: Mapping[str, str]) -> Sound:
    """The `output_format`. Raises `GatewayError`."""
    name = query.get("output_format", DEFAULT_FORMAT)
    sound = ELEVENLABS.get(name)
    if sound is None:
        message = f"output_format {name!r} is not made here; these are: {', '.join(ELEVENLABS)}."
        raise GatewayError("unknown_format", message, field="query.output_format")
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
        "param": failure.field.removeprefix("query.") if failure.field else None,
    }


def error_reply(failure: GatewayError) -> Response:
    """A failure in ElevenLabs' shape: for a malformed request a list of fields."""
    if failure.code in _INVALID:
        where = (failure.field or "").split(".")
        place = where if where[0] == "query" else ["body", *filter(None, where)]
        item = {"loc": place, "msg": failure.message, "type": "value_error"}
        return json_response(422, {"detail": [item]})
    status = _STATUS.get(failure.code) or status_of(failure.code)
    detail = detail_of(failure)
    headers = {"request-id": detail["request_id"], **retry_headers(failure)}
    return json_response(status, {"detail": detail}, headers)
