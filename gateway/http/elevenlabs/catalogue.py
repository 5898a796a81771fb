"""Voices and models, as ElevenLabs lists them."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from engine.api import Voice
from gateway.door import Door
from gateway.http.elevenlabs.wishes import MODEL, MODELS, error_reply
from gateway.http.health import json_response
from gateway.link import GatewayError

_NAMES = {"en": "English", "zh": "Chinese"}


class Catalogue:
    """The routes."""

    def __init__(self, door: Door) -> None:
        self._door = door

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


def asks(request: HTTPConnection) -> bool:
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
