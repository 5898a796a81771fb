"""What a session costs beside engine, codec and Opus, and how long the event loop is ever blocked.

    python -m bench.session_cost --streams 24 --seconds 60 --json docs/benchmarks/session-cost.json

Users who never stop to think listen to a gateway whose engine is a recording: it hands out
speech-like audio at 1.3 times real time, in chunks as the real one does, and takes next to no time
itself. What the gateway's process then spends, without the time in encoders, is the sessions' own:
cutting, pacing, loudness, seams, messages, sockets. The loop's lag is the gateway's own measure.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import uvloop
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from bench import load, machine
from bench.gateway_process import GatewayError, GatewayProcess
from bench.scrape import metrics_url
from bench.stats import rounded
from bench.texts import sentences
from engine.api import (
    SAMPLE_RATE,
    SAMPLES_PER_FRAME,
    AudioChunk,
    EngineLimits,
    EngineStats,
    Pcm,
    Progress,
    SpeechRequest,
    Voice,
)
from gateway.client import Audio, VoiceClient
from gateway.protocol import TurnDone

PACE = 1.3
_CHUNKS = (2, 4, 8, 16)
"""Frames; the last repeats. Decodes grow with the listener's lead."""
_CHARS_PER_SECOND = 14.0
_ENCODERS = "voxgate_encode_seconds_total"
_LAG = "voxgate_loop_lag_seconds"


class RecordedEngine:
    """`engine.api.Synthesizer`: every piece is the same half minute of noise with pauses."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        time_axis = np.arange(30 * SAMPLE_RATE) / SAMPLE_RATE
        loud = np.clip(np.sin(2 * np.pi * 2.5 * time_axis) + 0.6, 0.0, 1.0)
        self._audio: Pcm = (0.1 * loud * rng.standard_normal(time_axis.size)).astype(np.float32)
        self._state = "stopped"

    async def start(self, progress: Progress | None = None) -> None:
        self._state = "ready"

    async def close(self) -> None:
        self._state = "stopped"

    def voices(self) -> Sequence[Voice]:
        return (Voice("default", "Recorded", ("en", "zh")),)

    def voice_files(self) -> Sequence[Path]:
        return ()

    async def reload_voices(self) -> None:
        """There are no others."""

    @property
    def limits(self) -> EngineLimits:
        return EngineLimits(max_text_chars=300, max_streams=256, min_speed=0.5, max_speed=2.0)

    def stats(self) -> EngineStats:
        return EngineStats(state=self._state)

    async def speak(self, request: SpeechRequest) -> AsyncGenerator[AudioChunk, None]:
        loop = asyncio.get_running_loop()
        due, at, step = loop.time(), 0, 0
        frames = max(
            20, int(len(request.text) / _CHARS_PER_SECOND * SAMPLE_RATE) // SAMPLES_PER_FRAME
        )
        while frames:
            taken = min(frames, _CHUNKS[min(step, len(_CHUNKS) - 1)])
            samples = taken * SAMPLES_PER_FRAME
            due += samples / SAMPLE_RATE / PACE
            await asyncio.sleep(due - loop.time())
            yield AudioChunk(self._audio[at : at + samples])
            frames, at, step = frames - taken, (at + samples) % (29 * SAMPLE_RATE), step + 1
        yield AudioChunk(self._audio[:0], final=True)


def serve_recorded(arguments: list[str]) -> int:
    """`voxgate serve` with the recording for an engine."""
    from gateway.cli import main as voxgate
    from gateway.commands import serve

    vars(serve)["engine_factory"] = lambda _arguments: RecordedEngine
    return voxgate(["serve", *arguments])


class RecordedGateway(GatewayProcess):
    """A process that serves the recording."""

    command = (sys.executable, "-m", "bench.session_cost", "--serve")


async def listen(url: str, texts: Any, until: float) -> float:
    """One user who hears turn after turn as it is played; returns seconds of audio."""
    samples = 0
    async with VoiceClient(url) as client:
        while time.perf_counter() < until:
            text = " ".join(next(texts) for _ in range(3))
            began, heard = time.perf_counter(), 0
            async with aclosing(client.speak(text)) as events:
                async for event in events:
                    if isinstance(event, Audio):
                        heard += event.samples
                    elif isinstance(event, TurnDone):
                        break
            samples += heard
            await asyncio.sleep(max(0.0, began + heard / SAMPLE_RATE - time.perf_counter()))
    return samples / SAMPLE_RATE


async def read(url: str) -> dict[str, float]:
    """Samples of /metrics by name, with the bound of buckets."""
    async with httpx.AsyncClient() as http:
        text = (await http.get(metrics_url(url), timeout=5)).text
    return {
        sample.name + sample.labels.get("le", ""): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """One window. Raises `GatewayError`."""
    about = machine.about("session-cost")
    async with RecordedGateway() as gateway:
        until = time.perf_counter() + options.seconds
        texts = [
            sentences(options.language, random.Random(number)) for number in range(options.streams)
        ]
        users = [asyncio.create_task(listen(gateway.url, each, until)) for each in texts]
        await asyncio.sleep(2.0)
        before, used, began = (
            await read(gateway.url),
            machine.usage(gateway.pid),
            time.perf_counter(),
        )
        await asyncio.sleep(options.seconds - 4.0)
        after, now, ended = await read(gateway.url), machine.usage(gateway.pid), time.perf_counter()
        await asyncio.gather(*users)
    seconds = ended - began
    spent = now.cpu_seconds - used.cpu_seconds
    encoders = after[_ENCODERS] - before[_ENCODERS]
    audio = (after["voxgate_packets_total"] - before["voxgate_packets_total"]) * 0.02

    def above(name: str, bound: str) -> float:
        found = [
            page[f"{name}_bucket{each}"] for page in (before, after) for each in (bound, "+Inf")
        ]
        return (found[3] - found[2]) - (found[1] - found[0])

    looks = after[_LAG + "_bucket+Inf"] - before[_LAG + "_bucket+Inf"]
    return {
        "streams": options.streams,
        "seconds": rounded(seconds),
        "audio_seconds_per_second": rounded(audio / seconds),
        "cpu_percent_per_stream": rounded(100 * (spent - encoders) / audio),
        "encoder_percent_per_stream": rounded(100 * encoders / audio),
        "loop_lag_ms": {
            "longest": rounded(1000 * after[_LAG.replace("lag", "lag_longest")]),
            "above_20": above(_LAG, "0.02"),
            "above_20_by_own_work": above(_LAG.replace("lag", "block"), "0.02"),
            "looks": looks,
        },
        **about,
    }


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(
        prog="python -m bench.session_cost", description=(__doc__ or "").splitlines()[0]
    )
    arguments.add_argument("--streams", type=int, default=24)
    arguments.add_argument("--seconds", type=float, default=60.0)
    arguments.add_argument("--language", choices=("en", "zh", "both"), default="both")
    arguments.add_argument("--json", type=Path)
    return arguments


def main() -> int:
    if sys.argv[1:2] == ["--serve"]:
        return serve_recorded(sys.argv[2:])
    options = parser().parse_args()
    console = Console(stderr=True)
    try:
        result = uvloop.run(run(options, console))
    except GatewayError as error:
        console.print(f"[red]{error}")
        return 1
    print(json.dumps(result, indent=2))
    load.write_json(result, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
