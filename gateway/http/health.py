"""Liveness, readiness and metrics.

Readiness speaks: a gateway whose engine loads, listens and makes no sound is not ready. The answer
is kept for some seconds and asked for once at a time, so that probes cannot load the engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any

import orjson
from starlette.responses import Response

from engine.api import SpeechError, SpeechRequest, Synthesizer
from gateway.failures import Failures
from gateway.metrics import Metrics
from gateway.pauses import milliseconds
from gateway.settings import Settings

PROBE_TEXT = "Hello."


def json_response(
    status: int, body: dict[str, Any], headers: dict[str, str] | None = None
) -> Response:
    """JSON that no cache keeps."""
    return Response(
        orjson.dumps(body),
        status,
        {"cache-control": "no-store", **(headers or {})},
        "application/json",
    )


class Readiness:
    """Whether the gateway speaks: `check` gives an HTTP status and a JSON body."""

    def __init__(
        self,
        synthesizer: Synthesizer,
        settings: Settings,
        metrics: Metrics,
        failures: Failures,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._synthesizer = synthesizer
        self._settings = settings
        self._metrics = metrics
        self._failures = failures
        self._clock = clock
        self._lock = asyncio.Lock()
        self._known: tuple[float, int, dict[str, Any]] | None = None
        self.draining = False
        self.progress = ("", 0.0)
        """What the engine is doing while it starts, and the share done."""
        self.failure: str | None = None
        """Why the engine could not start."""

    async def check(self) -> tuple[int, dict[str, Any]]:
        if self.draining:
            return 503, {"ready": False, "reason": "draining"}
        if self.failure is not None:
            return 503, {"ready": False, "reason": "failed", "message": self.failure}
        state = self._synthesizer.stats().state
        if state != "ready":
            body: dict[str, Any] = {"ready": False, "reason": state}
            if state == "starting":
                body |= {"doing": self.progress[0], "done": round(self.progress[1], 2)}
            return 503, body
        failing = self._failures.too_many()
        if failing is not None:
            return self._unready("failing", failing)
        async with self._lock:
            known = self._known
            if known is None or self._clock() - known[0] > self._settings.ready_cache_seconds:
                status, body = await self._speak()
                self._known = known = (self._clock(), status, body)
        return known[1], known[2]

    async def _speak(self) -> tuple[int, dict[str, Any]]:
        started = self._clock()
        deadline = self._settings.ready_deadline_seconds
        samples, first = 0, 0.0
        request = SpeechRequest(text=PROBE_TEXT, language="en", seed=0)
        try:
            async with (
                asyncio.timeout(deadline),
                contextlib.aclosing(self._synthesizer.speak(request)) as stream,
            ):
                async for chunk in stream:
                    if chunk.pcm.size and not samples:
                        first = self._clock() - started
                    samples += chunk.pcm.size
        except TimeoutError:
            return self._unready("deadline", f"No speech within {deadline:g} s.")
        except SpeechError as error:
            return self._unready(error.code, error.message)
        if not samples:
            return self._unready("silent", "The engine answered without audio.")
        return 200, {
            "ready": True,
            "first_audio_ms": round(first * 1000, 1),
            "audio_ms": milliseconds(samples),
        }

    def _unready(self, reason: str, message: str) -> tuple[int, dict[str, Any]]:
        self._metrics.not_ready()
        return 503, {"ready": False, "reason": reason, "message": message}
