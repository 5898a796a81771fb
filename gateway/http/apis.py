"""All protocols besides the WebSocket of `/v1/stream`, on the same port."""

from __future__ import annotations

from starlette.routing import BaseRoute, Route

from gateway.door import Door
from gateway.http.batch import PATH, Batch
from gateway.http.jobs import Jobs
from gateway.http.native import Native
from gateway.http.openai import OpenAi


class Apis:
    """Their routes, and what of them lives as long as the gateway."""

    def __init__(self, door: Door) -> None:
        self.jobs = Jobs(door)
        self._openai = OpenAi(door)
        self._native = Native(door)
        self._batch = Batch(door, self.jobs)

    async def start(self) -> None:
        """Raises `OSError` when a folder that is configured cannot be used."""
        await self.jobs.start()

    async def close(self) -> None:
        await self.jobs.close()

    def routes(self) -> list[BaseRoute]:
        openai, batch = self._openai, self._batch
        return [
            Route("/v1/audio/speech", openai.speech, methods=["POST"]),
            Route("/v1/audio/voices", openai.voices),
            Route("/v1/models", openai.models),
            Route("/v1/models/{model}", openai.model),
            Route("/tts", self._native.tts, methods=["POST"]),
            Route(PATH, batch.create, methods=["POST"]),
            Route(PATH + "/{job}", batch.status),
            Route(PATH + "/{job}", batch.delete, methods=["DELETE"]),
            Route(PATH + "/{job}/events", batch.events),
            Route(PATH + "/{job}/tasks/{number:int}/audio", batch.audio),
        ]
