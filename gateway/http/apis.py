"""All protocols besides the WebSocket of `/v1/stream`, on the same port."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute

from gateway.door import Door
from gateway.http import asyncapi, openapi
from gateway.http.batch import PATH, Batch
from gateway.http.elevenlabs.catalogue import Catalogue, asks
from gateway.http.elevenlabs.routes import ElevenLabs
from gateway.http.elevenlabs.sockets import Sockets
from gateway.http.health import json_response
from gateway.http.jobs import Jobs
from gateway.http.native import Native
from gateway.http.openai import OpenAi

_TTS = "/v1/text-to-speech/{voice_id}"


class Apis:
    """Their routes, and what of them lives as long as the gateway."""

    def __init__(self, door: Door) -> None:
        self.jobs = Jobs(door)
        self._openai = OpenAi(door)
        self._elevenlabs = ElevenLabs(door)
        self._catalogue = Catalogue(door)
        self._sockets = Sockets(door)
        self._native = Native(door)
        self._batch = Batch(door, self.jobs)

    async def start(self) -> None:
        """Raises `OSError` when a folder that is configured cannot be used."""
        await self.jobs.start()

    async def drain(self) -> None:
        """The server stops: nobody waits for what nobody listens to."""
        await self.jobs.stop()

    async def close(self) -> None:
        await self.jobs.close()

    def routes(self) -> list[BaseRoute]:
        openai, batch = self._openai, self._batch
        eleven, catalogue = self._elevenlabs, self._catalogue
        return [
            Route("/v1/audio/speech", openai.speech, methods=["POST"]),
            Route("/v1/audio/voices", openai.voices),
            Route("/v1/models", self._models),
            Route("/v1/models/{model}", openai.model),
            Route("/openapi.json", _openapi),
            Route("/asyncapi.json", _asyncapi),
            Route(_TTS, eleven.convert, methods=["POST"]),
            Route(f"{_TTS}/stream", eleven.convert, methods=["POST"]),
            Route(f"{_TTS}/with-timestamps", eleven.with_timestamps, methods=["POST"]),
            Route(
                f"{_TTS}/stream/with-timestamps", eleven.stream_with_timestamps, methods=["POST"]
            ),
            WebSocketRoute(f"{_TTS}/stream-input", self._sockets.stream_input),
            WebSocketRoute(f"{_TTS}/multi-stream-input", self._sockets.multi_stream_input),
            Route("/v1/voices", catalogue.voices),
            Route("/v1/voices/{voice_id}", catalogue.voice),
            Route("/v2/voices", catalogue.search),
            Route("/tts", self._native.tts, methods=["POST"]),
            Route(PATH, batch.create, methods=["POST"]),
            Route(PATH + "/{job}", batch.status),
            Route(PATH + "/{job}", batch.delete, methods=["DELETE"]),
            Route(PATH + "/{job}/events", batch.events),
            Route(PATH + "/{job}/tasks/{number}/audio", batch.audio),
        ]

    async def _models(self, request: Request) -> Response:
        """`GET /v1/models`, which two APIs have."""
        ours = self._catalogue if asks(request) else self._openai
        return await ours.models(request)


async def _openapi(_: Request) -> Response:
    """`GET /openapi.json`."""
    return json_response(200, openapi.document())


async def _asyncapi(_: Request) -> Response:
    """`GET /asyncapi.json`."""
    return json_response(200, asyncapi.document())
