"""All protocols besides the WebSocket of `/v1/stream`, on the same port."""

from __future__ import annotations

from starlette.routing import BaseRoute, Route

from gateway.door import Door
from gateway.http.openai import OpenAi


class Apis:
    """Their routes, and what of them lives as long as the gateway."""

    def __init__(self, door: Door) -> None:
        self._openai = OpenAi(door)

    def routes(self) -> list[BaseRoute]:
        openai = self._openai
        return [
            Route("/v1/audio/speech", openai.speech, methods=["POST"]),
            Route("/v1/audio/voices", openai.voices),
            Route("/v1/models", openai.models),
            Route("/v1/models/{model}", openai.model),
        ]
