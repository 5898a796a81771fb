"""Full-size ChatTTS layout on one GPU: frames a second, first audio, gapless listeners, memory.

    python -m bench.gpu --source DIR --json gpu.json --plot gpu.png

Weights are random. Every stream goes through `engine.synthesizer` with real codec decode; the
reference loop (package folder of `chattts` 0.2.5 in DIR) gets the same weights on the same GPU in
the same run, level by level in turns. The result is written after every part, so that a part that
fails, or a run that is cut off, leaves the rest.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from bench import machine
from bench.arrivals import poisson_starts
from bench.engine_runs import listen, speak_together
from bench.gpu_sampling import GpuSampler
from bench.reference import Install, Worker, random_release
from bench.stats import rounded, summary
from bench.tables import gpu
from bench.texts import sentences
from engine.api import SAMPLE_RATE, SAMPLES_PER_FRAME, EngineStats, Synthesizer
from engine.settings import EngineSettings

FRAMES_PER_SECOND = SAMPLE_RATE / SAMPLES_PER_FRAME


class Report:
    """A result that is on disk after every part; a part that fails is noted and passed over."""

    def __init__(self, path: Path | None, budget: float) -> None:
        self.result: dict[str, Any] = {
            **machine.about("gpu"),
            "rows": [],
            "errors": {},
            "skipped": [],
        }
        self._path = path
        self._deadline = time.monotonic() + budget
        self._longest = budget / 2

    async def part(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """Run one part unless time is up; none may take more than half of the whole budget."""
        left = min(self._deadline - time.monotonic(), self._longest)
        if left <= 0:
            self.result["skipped"].append(name)
            return
        began = time.monotonic()
        try:
            async with asyncio.timeout(left):
                await run()
        except Exception as error:
            self.result["errors"][name] = "".join(traceback.format_exception(error))[-4000:]
            print(f"{name}: failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            return
        finally:
            self.write()
        print(f"{name}: {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)

    def row(self, streams: int) -> dict[str, Any]:
        """The row of a level, made when it is new."""
        rows: list[dict[str, Any]] = self.result["rows"]
        for row in rows:
            if row["streams"] == streams:
                return row
        rows.append({"streams": streams})
        return rows[-1]

    def write(self) -> None:
        """Put what there is on disk, all or nothing."""
        if self._path is not None:
            draft = self._path.with_suffix(".part")
            draft.write_text(json.dumps(self.result, indent=1) + "\n")
            draft.replace(self._path)


class EngineSide:
    """The engine's part of every row."""

    def __init__(
        self, synthesizer: Synthesizer, report: Report, sampler: GpuSampler, frames: int
    ) -> None:
        self._synthesizer = synthesizer
        self._report = report
        self._sampler = sampler
        self._frames = frames
        self._texts: Iterator[str] = sentences("both", random.Random(0))
        self._voices = [voice.id for voice in synthesizer.voices()] or ["default"]

    async def together(self, streams: int) -> None:
        """All streams at once, equal lengths: frames a second."""
        before, began = self._synthesizer.stats(), time.perf_counter()
        batch = await speak_together(
            self._synthesizer, streams, self._frames, texts=self._texts, voices=self._voices
        )
        self._report.row(streams)["engine"] = {
            "frames_per_second": rounded(batch.frames_per_second),
            "times_real_time": rounded(batch.frames_per_second / FRAMES_PER_SECOND),
            "first_audio_ms": summary(batch.first_seconds, scale=1000),
            "gpu": self._sampler.between(began, time.perf_counter()),
            **hit_rate(before, self._synthesizer.stats()),
        }

    async def listeners(self, streams: int, seconds: float) -> None:
        """Listeners who start at random and play in real time: gaps and first audio."""
        before, began = self._synthesizer.stats(), time.perf_counter()
        starts = poisson_starts(streams, seconds / 4, random.Random(streams))
        heard = await listen(
            self._synthesizer,
            starts,
            seconds=seconds,
            frames=self._frames,
            texts=self._texts,
            voices=self._voices,
        )
        self._report.row(streams)["listeners"] = {
            "gapless_share": rounded(heard.gapless / heard.listeners),
            "first_audio_ms": summary(heard.first_seconds, scale=1000),
            "gap_ms": summary(heard.gaps, scale=1000),
            "audio_seconds_per_second": rounded(heard.samples / SAMPLE_RATE / seconds),
            "seconds": seconds,
            "errors": heard.errors,
            "gpu": self._sampler.between(began, time.perf_counter()),
            **hit_rate(before, self._synthesizer.stats()),
        }


def hit_rate(before: EngineStats, after: EngineStats) -> dict[str, Any]:
    """Prefix-cache hit rate and preemptions between two snapshots."""
    queries = after.prefix_cache_queries - before.prefix_cache_queries
    hits = after.prefix_cache_hits - before.prefix_cache_hits
    return {
        "prefix_cache_hit_rate": rounded(hits / queries) if queries else None,
        "preemptions": after.preemptions - before.preemptions,
    }


class ReferenceSide:
    """The reference loop's part of every row; its process is started anew after a failure."""

    def __init__(self, options: argparse.Namespace, release: Path, device: str) -> None:
        self._install = Install(Path(sys.executable), options.source)
        self._release, self._device = release, device
        self._dtype: str = options.dtype
        self._frames: int = options.frames
        self._worker: Worker | None = None

    async def together(self, report: Report, sampler: GpuSampler, streams: int) -> None:
        """The same number of streams in one batch of the reference."""
        try:
            if self._worker is None:
                self._worker = Worker(self._install, self._release, self._device, self._dtype)
                await self._worker.__aenter__()
                report.result["reference"] = self._worker.about
                await self._worker.run(1, 24, 40)
            await self._worker.run(streams, 8, 40)
            began = time.perf_counter()
            answer = await self._worker.run(streams, self._frames, 40)
        except BaseException:
            await self.close()
            raise
        rate = answer["frames"] / answer["seconds"]
        row = report.row(streams)
        row["reference"] = {
            "frames_per_second": rounded(rate),
            "times_real_time": rounded(rate / FRAMES_PER_SECOND),
            "request_ms": rounded(answer["seconds"] * 1000),
            "peak_gib": rounded(answer["peak_bytes"] / 2**30),
            "gpu": sampler.between(began, time.perf_counter()),
        }
        if "engine" in row:
            row["times_reference"] = rounded(row["engine"]["frames_per_second"] / rate, 3)

    async def close(self) -> None:
        """End the reference's process."""
        if self._worker is not None:
            await self._worker.__aexit__(None, None, None)
            self._worker = None


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run every part; what failed or had no time is named in the result."""
    report = Report(options.json, options.budget)
    names = ("frames", "seconds", "size", "memory_share", "decode_from", "decode_threads")
    report.result["settings"] = {
        **{name: getattr(options, name) for name in (*names, "stream_interval", "device", "eager")},
        "reference_dtype": options.dtype,
    }
    report.write()
    release = options.release or await asyncio.to_thread(random_release, options.size)
    synthesizer: Synthesizer | None = None

    async def start() -> None:
        nonlocal synthesizer
        from engine.synthesizer import create

        began = time.monotonic()
        made = create(
            EngineSettings(
                checkpoint=release,
                device=options.device,
                max_streams=max(options.streams),
                gpu_memory_utilization=options.memory_share,
                decode_from=options.decode_from,
                stream_interval=options.stream_interval,
                decode_threads=options.decode_threads,
                compiled=False if options.eager else None,
            )
        )
        await made.start(lambda what, share: print(f"{share:4.0%} {what}", file=sys.stderr))
        synthesizer = made
        report.result["start_seconds"] = rounded(time.monotonic() - began)

    device = "cuda" if options.device == "cuda" else "cpu"
    reference = ReferenceSide(options, release, device) if options.source else None
    with GpuSampler() as sampler:
        try:
            await report.part("engine start", start)
            if synthesizer is not None:
                engine = EngineSide(synthesizer, report, sampler, options.frames)
                await report.part("warm-up", partial(engine.together, 1))
            for streams in options.streams:
                if synthesizer is not None:
                    await report.part(
                        f"engine, {streams} at once", partial(engine.together, streams)
                    )
                    await report.part(
                        f"{streams} listeners",
                        partial(engine.listeners, streams, options.seconds),
                    )
                if reference is not None:
                    await report.part(
                        f"reference, {streams} at once",
                        partial(reference.together, report, sampler, streams),
                    )
        finally:
            if reference is not None:
                await reference.close()
            if synthesizer is not None:
                with suppress(TimeoutError):
                    await asyncio.wait_for(synthesizer.close(), 60)
    report.write()
    return report.result


def parser() -> argparse.ArgumentParser:
    """Command line of this benchmark."""
    arguments = argparse.ArgumentParser(
        prog="python -m bench.gpu", description=(__doc__ or "").splitlines()[0]
    )
    add = arguments.add_argument
    add("--source", type=Path, help="folder that holds the reference's package ChatTTS")
    add("--release", type=Path, help="a release directory instead of random weights")
    add("--size", choices=["full", "small"], default="full", help="of the random weights")
    add("--device", choices=["cuda", "cpu"], default="cuda")
    add("--streams", type=int, nargs="+", default=[1, 64, 256, 512])
    add("--frames", type=int, default=300, help="of every request")
    add("--seconds", type=float, default=15.0, help="of every window with listeners")
    add("--budget", type=float, default=420.0, help="seconds after which parts are left out")
    add("--memory-share", type=float, default=0.5, help="of the GPU's memory for the engine")
    add("--decode-from", choices=["codes", "hidden"])
    add("--decode-threads", type=int, default=1)
    add("--stream-interval", type=int, help="frames a message; default: the engine's choice")
    add("--eager", action="store_true", help="no CUDA graphs: starts faster, runs slower")
    add("--dtype", default="float32", help="of the reference; it ships float32")
    add("--json", type=Path)
    add("--plot", type=Path, help="PNG or SVG of throughput and first audio against streams")
    return arguments


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    for name, value in (("HF_HUB_OFFLINE", "1"), ("VLLM_USE_FLASHINFER_SAMPLER", "0")):
        os.environ.setdefault(name, value)
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
    result = uvloop.run(measure(options))
    print(gpu(result))
    if options.plot is not None:
        from bench.plots import plot_gpu

        plot_gpu(result, options.plot)
    return 1 if result["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())
