"""One engine in a process of its own that runs loads on request: a member of a fleet.

    python -m bench.engine_worker '{"settings": {"device": "cpu"}, "vllm": {}, "chunks": {}}'

`settings` are those of `engine.settings.EngineSettings`; with `opus_threads` all audio is encoded.
One JSON object a line on standard input, one answer a line on standard output; see `_Loads`. The
first answer says that it is ready.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
import traceback
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import uvloop

from bench.arrivals import poisson_starts
from bench.engine_runs import Listeners, listen, speak_together
from bench.texts import sentences
from engine.api import (
    AudioChunk,
    EngineStats,
    Pcm,
    SpeechError,
    SpeechRequest,
    Synthesizer,
    Voice,
)

_COMPLEXITY = 5
"""Of Opus, as the gateway ships."""


class _Encoded:
    """A synthesizer whose chunks are Opus packets too before anybody gets them: 20 ms, 32 kbit/s,
    in threads, as many as `threads`. Only `speak` is that of a synthesizer."""

    def __init__(self, synthesizer: Synthesizer, threads: int) -> None:
        self._synthesizer = synthesizer
        self._pool = ThreadPoolExecutor(threads, "opus")

    async def speak(self, request: SpeechRequest) -> AsyncGenerator[AudioChunk, None]:
        from gateway.opus import OpusEncoder

        encoder, loop = OpusEncoder(20, 32_000, _COMPLEXITY), asyncio.get_running_loop()
        rest = np.zeros(0, np.float32)

        def encode(pcm: Pcm) -> Pcm:
            whole = np.concatenate([rest, pcm])
            end = whole.size - whole.size % encoder.frame_samples
            for at in range(0, end, encoder.frame_samples):
                encoder.encode(whole[at : at + encoder.frame_samples])
            left: Pcm = whole[end:]
            return left

        async with aclosing(self._synthesizer.speak(request)) as chunks:
            async for chunk in chunks:
                rest = await loop.run_in_executor(self._pool, encode, chunk.pcm)
                yield chunk

    def voices(self) -> Sequence[Voice]:
        return self._synthesizer.voices()


class _Loads:
    """What a fleet can ask for. Answers hold raw values, so that several engines' add up."""

    def __init__(self, synthesizer: Synthesizer) -> None:
        self._synthesizer = synthesizer
        self._texts = sentences("both", random.Random(0))
        self._voices = [voice.id for voice in synthesizer.voices()] or ["default"]

    async def listeners(self, streams: int, seconds: float, frames: int, seed: int) -> Any:
        """Listeners in real time; see `bench.engine_runs.listen`."""
        starts = poisson_starts(streams, seconds / 4, random.Random(seed))
        heard: Listeners = await listen(
            self._synthesizer,
            starts,
            seconds=seconds,
            frames=frames,
            texts=self._texts,
            voices=self._voices,
        )
        return asdict(heard)

    async def requests(self, concurrent: int, seconds: float, frames: int) -> Any:
        """So many clients, each asking again as soon as it was answered: `latencies` in seconds."""
        ends_at = time.perf_counter() + seconds
        latencies: list[float] = []

        async def client() -> None:
            while time.perf_counter() < ends_at:
                began = time.perf_counter()
                await speak_together(
                    self._synthesizer, 1, frames, texts=self._texts, voices=self._voices
                )
                latencies.append(time.perf_counter() - began)

        began = time.perf_counter()
        await asyncio.gather(*(client() for _ in range(concurrent)))
        return {"latencies": latencies, "seconds": time.perf_counter() - began}

    async def together(self, streams: int, frames: int) -> Any:
        """All at once, as fast as it goes."""
        batch = await speak_together(
            self._synthesizer, streams, frames, texts=self._texts, voices=self._voices
        )
        return asdict(batch)


async def serve(config: dict[str, Any]) -> None:
    from engine import synthesizer as module
    from engine.chunking import ChunkPolicy
    from engine.settings import EngineSettings

    vars(module)["ChunkPolicy"] = partial(ChunkPolicy, **config.get("chunks", {}))
    settings = dict(config.get("settings", {}))
    if settings.get("checkpoint"):
        settings["checkpoint"] = Path(settings["checkpoint"])
    synthesizer = module.create(EngineSettings(**settings, vllm=config.get("vllm", {})))
    began = time.monotonic()
    await synthesizer.start()
    threads = int(config.get("opus_threads", 0))
    loads = _Loads(cast(Synthesizer, _Encoded(synthesizer, threads)) if threads else synthesizer)
    # The first steps of a process are slower than all that follow.
    await loads.together(1, 40)
    _answer({"ready": True, "start_seconds": time.monotonic() - began})
    try:
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            request = json.loads(line)
            before = synthesizer.stats()
            try:
                result = await getattr(loads, request.pop("do"))(**request)
            except (SpeechError, RuntimeError) as error:
                _answer({"error": "".join(traceback.format_exception(error))[-2000:]})
                continue
            _answer({**result, **_delta(before, synthesizer.stats())})
    finally:
        await synthesizer.close()


def _delta(before: EngineStats, after: EngineStats) -> dict[str, int]:
    names = ("prefix_cache_queries", "prefix_cache_hits", "preemptions", "frames")
    return {f"engine_{name}": getattr(after, name) - getattr(before, name) for name in names}


def _answer(values: dict[str, Any]) -> None:
    left = json.dumps(values).encode() + b"\n"
    while left:
        left = left[os.write(_ANSWERS, left) :]


_ANSWERS = 3
"""File descriptor; what vLLM's processes write to standard output goes to the log instead."""

if __name__ == "__main__":
    os.dup2(1, _ANSWERS)
    os.dup2(2, 1)
    uvloop.run(serve(json.loads(sys.argv[1])))
