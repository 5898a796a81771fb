"""Several engines, each a process with its own event loop: on one GPU, or one on each.

One Python process in front of a GPU is a limit of its own; engines that share the GPU each get an
equal part of its memory, and the driver lets their steps take turns.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from bench.player import SAMPLE_RATE
from bench.stats import rounded, summary
from bench.tuned import Tuning

_START_SECONDS = 400.0
_ANSWER_LIMIT = 1 << 26


class FleetError(RuntimeError):
    """An engine did not start or failed; the message says what it printed."""


def shares(engines: int, gpus: int, utilization: float) -> list[tuple[int, float]]:
    """GPU and share of its memory of every engine."""
    if engines < 1 or gpus < 1:
        raise ValueError("at least one engine and one GPU")
    on = [number % gpus for number in range(engines)]
    return [(gpu, utilization / on.count(gpu)) for gpu in on]


def split(total: int, parts: int) -> list[int]:
    """`total` streams over `parts` engines, as evenly as they go."""
    return [total // parts + (number < total % parts) for number in range(parts)]


def merge(answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Answers of engines that ran at the same time as that of one: sums, joined lists, the longest
    time."""
    merged: dict[str, Any] = {}
    for answer in answers:
        for name, value in answer.items():
            if name not in merged:
                merged[name] = value
            elif isinstance(value, list):
                merged[name] = merged[name] + value
            elif isinstance(value, dict):
                total = merged[name]
                merged[name] = {
                    key: total.get(key, 0) + value.get(key, 0) for key in {**total, **value}
                }
            elif name == "seconds":
                merged[name] = max(merged[name], value)
            else:
                merged[name] += value
    return merged


def listeners_row(answer: Mapping[str, Any]) -> dict[str, Any]:
    """A merged `listeners` answer as it goes into a report."""
    queries = answer["engine_prefix_cache_queries"]
    return {
        "streams": answer["listeners"],
        "gapless_share": rounded(answer["gapless"] / max(1, answer["listeners"])),
        "first_audio_ms": summary(answer["first_seconds"], scale=1000),
        "gap_ms": summary(answer["gaps"], scale=1000),
        "audio_seconds_per_second": rounded(answer["samples"] / SAMPLE_RATE / answer["seconds"]),
        "errors": answer["errors"],
        "prefix_cache_hit_rate": (
            rounded(answer["engine_prefix_cache_hits"] / queries) if queries else None
        ),
        "preemptions": answer["engine_preemptions"],
    }


class Fleet:
    """Engines while entered. Raises `FleetError`."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        tuning: Tuning | None = None,
        *,
        engines: int = 1,
        gpus: int = 1,
        utilization: float = 0.6,
        opus_threads: int = 0,
    ) -> None:
        tuning = tuning or Tuning()
        self._configs: list[tuple[int, dict[str, Any]]] = []
        for gpu, share in shares(engines, gpus, utilization):
            own = {"gpu_memory_utilization": share, **settings, **tuning.engine}
            config: dict[str, Any] = {
                "settings": own,
                "vllm": tuning.vllm,
                "chunks": tuning.chunks,
                "opus_threads": opus_threads,
            }
            self._configs.append((gpu, config))
        self._processes: list[asyncio.subprocess.Process] = []
        self._logs: list[Any] = []
        self.start_seconds: list[float] = []

    async def __aenter__(self) -> Self:
        try:
            # One after the other: vLLM takes the free memory it measures for its own.
            for gpu, config in self._configs:
                log = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed with the fleet)
                self._logs.append(log)
                environment = dict(os.environ)
                if config["settings"].get("device") == "cuda":
                    environment["CUDA_VISIBLE_DEVICES"] = str(gpu)
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "bench.engine_worker", json.dumps(config)),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=log,
                    limit=_ANSWER_LIMIT,
                    env=environment,
                    start_new_session=True,
                )
                self._processes.append(process)
                async with asyncio.timeout(_START_SECONDS):
                    ready = await self._answer(len(self._processes) - 1)
                self.start_seconds.append(rounded(ready["start_seconds"]))
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stop()

    async def listeners(self, streams: int, seconds: float, frames: int) -> dict[str, Any]:
        """So many listeners in all, spread over the engines."""
        requests = [
            {"do": "listeners", "streams": n, "seconds": seconds, "frames": frames, "seed": i}
            for i, n in enumerate(split(streams, len(self._processes)))
        ]
        return merge(await self._ask(requests))

    async def requests(self, concurrent: int, seconds: float, frames: int) -> dict[str, Any]:
        """So many clients in all, spread over the engines."""
        requests = [
            {"do": "requests", "concurrent": n, "seconds": seconds, "frames": frames}
            for n in split(concurrent, len(self._processes))
        ]
        return merge(await self._ask(requests))

    async def together(self, streams: int, frames: int) -> dict[str, Any]:
        """So many pieces in all, started at once."""
        requests = [
            {"do": "together", "streams": n, "frames": frames}
            for n in split(streams, len(self._processes))
        ]
        return merge(await self._ask(requests))

    async def _ask(self, requests: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        for process, request in zip(self._processes, requests, strict=True):
            assert process.stdin is not None
            process.stdin.write(json.dumps(request).encode() + b"\n")
        answers = await asyncio.gather(*(self._answer(i) for i in range(len(requests))))
        for answer in answers:
            if "error" in answer:
                raise FleetError(answer["error"])
        return list(answers)

    async def _answer(self, number: int) -> dict[str, Any]:
        stdout = self._processes[number].stdout
        assert stdout is not None
        line = await stdout.readline()
        if not line:
            log = self._logs[number]
            log.seek(0)
            raise FleetError(f"engine {number} ended:\n{log.read()[-3000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def _stop(self) -> None:
        for process in self._processes:
            if process.stdin is not None:
                process.stdin.close()
        for process in self._processes:
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), 40)
            # Its engine process is of the same group.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        for log in self._logs:
            log.close()
        self._processes, self._logs = [], []
