"""Voices and models, as ElevenLabs lists them."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.datastructures import QueryParams
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from engine.api import Voice
from gateway.door import Door
from gateway.http.elevenlabs.wishes import MODEL, MODELS, error_reply, flag
from gateway.http.health import json_response
from gateway.link import GatewayError

_NAMES = {"en": "English", "zh": "Chinese"}
_FILTERS: dict[str, tuple[str, ...]] = {
    "category": ("premade",),
    "voice_type": ("default", "non-community"),
    "fine_tuning_state": (),
    "collection_id": (),
}
"""What of each filter the voices here meet."""


class Catalogue:
    """The routes."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def _all_voices(self) -> list[dict[str, Any]]:
        voices = list(self._door.voices)
        if all(voice.id != "default" for voice in voices):
            about = "Chooses the voice by the language of each piece of text."
            voices.insert(0, Voice("default", "Default", tuple(_NAMES), description=about))
        return [_voice(voice) for voice in voices]

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
        """`GET /v2/voices`: all filters; voices here are premade, and nobody's own."""
        query = request.query_params
        try:
            size, start = _page(query)
            found = self._found(query)
            counted = flag(query, "include_total_count", default=True)
        except GatewayError as failure:
            return error_reply(failure)
        end = start + size
        body = {
            "voices": found[start:end],
            "has_more": end < len(found),
            "total_count": len(found) if counted else 0,
            "next_page_token": str(end) if end < len(found) else None,
        }
        return json_response(200, body)

    def _found(self, query: QueryParams) -> list[dict[str, Any]]:
        """Raises `GatewayError`."""
        term, ids = query.get("search", "").lower(), query.getlist("voice_ids")
        found = [
            voice
            for voice in self._all_voices()
            if (not ids or voice["voice_id"] in ids)
            and term in orjson.dumps(voice).decode().lower()
            and all(query.get(name) in (None, *values) for name, values in _FILTERS.items())
        ]
        order, direction = query.get("sort"), query.get("sort_direction", "asc")
        if order not in (None, "name", "created_at_unix"):
            message = "sort is name or created_at_unix"
            raise GatewayError("bad_field", message, field="query.sort")
        if direction not in ("asc", "desc"):
            message = "sort_direction is asc or desc"
            raise GatewayError("bad_field", message, field="query.sort_direction")
        if order == "name":
            found.sort(key=lambda voice: str(voice["name"]).casefold())
        return found[::-1] if order and direction == "desc" else found

    async def models(self, _: Request) -> Response:
        """`GET /v1/models` for clients of ElevenLabs."""
        limit = self._door.settings.max_request_chars
        models = [_model(name, limit) for name in MODELS]
        return Response(orjson.dumps(models), media_type="application/json")


def _page(query: QueryParams) -> tuple[int, int]:
    """How many voices, from which on. Raises `GatewayError`."""
    size, token = query.get("page_size", "10"), query.get("next_page_token", "0")
    if not (size.isascii() and size.isdigit() and len(size) < 4 and 1 <= int(size) <= 100):
        message = "page_size is a number from 1 to 100"
        raise GatewayError("bad_field", message, field="query.page_size")
    if not (token.isascii() and token.isdigit() and len(token) < 10):
        message = "next_page_token was not given by this server"
        raise GatewayError("bad_field", message, field="query.next_page_token")
    return int(size), int(token)


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
