"""Everything that is measured on GPUs, in parts that fit into the time a machine is there.

    python -m bench.gpu_slice --parts table,features --budget 900 --source DIR --out docs/benchmarks

Each part writes its own file as results come and goes on where it stopped when called again;
`--list` says what there is and about how long each takes. Full-size layout, random weights, real
codec decode and Opus.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from bench import gpu, machine
from bench.features import FEATURES
from bench.fleet import Fleet, FleetError, listeners_row
from bench.gpu_sampling import GpuSampler
from bench.reference import Install, Worker, random_release
from bench.stats import rounded, summary
from bench.sweep import GPU_SWEEPS
from bench.tuned import Tuning

KV_BYTES_A_POSITION = 2 * 20 * 768 * 2
"""Keys and values of 20 layers of 768 in bfloat16."""
_PROMPT = 40


class OutOfTime(Exception):
    """The budget does not hold the next step."""


@dataclass(slots=True)
class Run:
    """What all parts share."""

    options: argparse.Namespace
    release: Path
    deadline: float
    sampler: GpuSampler

    @property
    def settings(self) -> dict[str, Any]:
        """Of every engine."""
        options = self.options
        return {
            "checkpoint": str(self.release),
            "device": options.device,
            "max_streams": options.max_streams,
            "compiled": False if options.eager else None,
            "decode_threads": options.decode_threads,
        }

    def fleet(self, tuning: Tuning | None = None, **more: Any) -> Fleet:
        return Fleet(
            {**self.settings, **more.pop("settings", {})},
            tuning,
            utilization=self.options.memory_share,
            opus_threads=self.options.opus_threads,
            **more,
        )

    def need(self, seconds: float) -> None:
        """Raises `OutOfTime` when less is left."""
        if time.monotonic() + seconds > self.deadline:
            raise OutOfTime


class Sheet:
    """A part's result on disk: rows by key, none measured twice."""

    def __init__(self, path: Path, kind: str, settings: Mapping[str, Any]) -> None:
        self._path = path
        self.result: dict[str, Any] = {
            **machine.about(kind),
            "settings": dict(settings),
            "rows": [],
            "errors": {},
        }
        if path.is_file():
            found = json.loads(path.read_text())
            if found["settings"] != self.result["settings"]:
                raise ValueError(f"{path} was made with other settings: delete it, or use --out")
            self.result = found

    def has(self, **key: Any) -> bool:
        return any(key.items() <= row.items() for row in self.result["rows"])

    def add(self, row: Mapping[str, Any]) -> None:
        self.result["rows"].append(dict(row))
        self.write()

    def fail(self, what: str, error: BaseException) -> None:
        self.result["errors"][what] = "".join(traceback.format_exception(error))[-3000:]
        self.write()
        print(f"{what}: failed: {error}"[:500], file=sys.stderr, flush=True)

    def write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        draft = self._path.with_suffix(".part")
        draft.write_text(json.dumps(self.result, indent=1) + "\n")
        draft.replace(self._path)


def sheet(run: Run, name: str, kind: str) -> Sheet:
    options = run.options
    names = ("frames", "seconds", "max_streams", "memory_share", "device", "eager", "size")
    more = ("decode_threads", "opus_threads")
    settings = {name: getattr(options, name) for name in (*names, *more)}
    return Sheet(options.out / f"{name}.json", kind, settings)


# -- parts ---------------------------------------------------------------------------------------


async def capacity(run: Run) -> None:
    """Engine and reference at once, and listeners, at 1 to 1,024 streams: `bench.gpu`."""
    options = run.options
    left = run.deadline - time.monotonic()
    arguments = ["--json", str(options.out / "gpu.json"), "--budget", str(left)]
    arguments += ["--plot", str(options.out / "gpu.png"), "--size", options.size]
    arguments += ["--device", options.device, "--frames", str(options.frames)]
    arguments += ["--streams", *map(str, options.streams), "--release", str(run.release)]
    arguments += ["--memory-share", str(options.memory_share), "--seconds", str(options.seconds)]
    arguments += ["--source", str(options.source)] if options.source else []
    arguments += ["--eager"] if options.eager else []
    await gpu.measure(gpu.parser().parse_args(arguments))


async def table(run: Run) -> None:
    """The write-ups' table: 1, 4, 10, 32 and 64 clients, ours and the reference's, in turns.

    The KV cache of ours holds ten requests and no more than that for each further ten, as theirs
    does, so that memory can be compared.
    """
    options, found = run.options, sheet(run, "gpu-table", "gpu-table")
    levels = [level for level in options.clients if not found.has(clients=level)]
    if not levels:
        return
    positions = _PROMPT + 60 + options.frames
    budget = {"kv_cache_bytes": 10 * positions * KV_BYTES_A_POSITION * max(1, max(levels) // 10)}
    reference: Worker | None = None
    run.need(90)
    try:
        async with run.fleet(settings=budget) as fleet:
            if options.source is not None:
                install = Install(Path(sys.executable), options.source)
                device = "cuda" if options.device == "cuda" else "cpu"
                reference = Worker(install, run.release, device, options.dtype)
                await reference.__aenter__()
                await reference.run(1, 24, _PROMPT)
            for clients in levels:
                run.need(3 * options.seconds)
                row: dict[str, Any] = {"clients": clients}
                began = time.perf_counter()
                answer = await fleet.requests(clients, options.seconds, options.frames)
                row["engine"] = requests_row(answer["latencies"], answer["seconds"]) | {
                    "gpu": run.sampler.between(began, time.perf_counter())
                }
                if reference is not None:
                    row |= await _reference_rows(run, reference, clients)
                found.add(row)
                print(f"{clients} clients: {row['engine']['qps']} QPS", file=sys.stderr, flush=True)
    finally:
        if reference is not None:
            await reference.__aexit__(None, None, None)


async def _reference_rows(run: Run, reference: Worker, clients: int) -> dict[str, Any]:
    """The reference's batch of all clients, and its serving of them one after another."""
    options = run.options
    await reference.run(clients, 8, _PROMPT)
    began = time.perf_counter()
    batch = await reference.run(clients, options.frames, _PROMPT)
    batched = requests_row([batch["seconds"]] * clients, batch["seconds"]) | {
        "gpu": run.sampler.between(began, time.perf_counter()),
        "peak_gib": rounded(batch["peak_bytes"] / 2**30),
    }
    one = (await reference.run(1, options.frames, _PROMPT))["seconds"]
    # Whoever asks again joins the end of the queue, and waits for all others.
    in_turn = requests_row([clients * one] * clients, clients * one)
    return {"reference_batched": batched, "reference_one_after_another": in_turn}


def requests_row(latencies: list[float], seconds: float) -> dict[str, Any]:
    """Requests a second and their latency."""
    return {"qps": rounded(len(latencies) / seconds), "ms": summary(latencies, scale=1000)}


async def features(run: Run) -> None:
    """Features off one by one, at `--level` listeners."""
    found = sheet(run, "features-gpu", "gpu-variants")
    await _variants(run, found, FEATURES)


async def sweeps(run: Run) -> None:
    """Settings through their ranges, at `--level` listeners."""
    for name, (values, tune) in GPU_SWEEPS.items():
        found = sheet(run, f"sweep-{name}-gpu", "gpu-variants")
        await _variants(run, found, {f"{name} {value:g}": tune(value) for value in values})


async def quantisation(run: Run) -> None:
    """Weights and KV cache in fewer bits: speed and memory."""
    found = sheet(run, "quantisation-gpu", "gpu-variants")
    await _variants(run, found, GPU_QUANTISATIONS)


GPU_QUANTISATIONS = {
    "bfloat16": Tuning(),
    "int8 weights": Tuning(engine={"quantization": "int8"}),
    "fp8 weights": Tuning(engine={"quantization": "fp8"}),
    "int4 weights": Tuning(engine={"quantization": "int4"}),
    "fp8 KV cache": Tuning(vllm={"kv_cache_dtype": "fp8"}),
    "fp8 weights and KV cache": Tuning(
        engine={"quantization": "fp8"}, vllm={"kv_cache_dtype": "fp8"}
    ),
}


async def _variants(run: Run, found: Sheet, tunings: Mapping[str, Tuning]) -> None:
    options = run.options
    for name, tuning in tunings.items():
        if found.has(variant=name) or name in found.result["errors"]:
            continue
        run.need(60 + 3 * options.seconds)
        try:
            async with run.fleet(tuning) as fleet:
                row: dict[str, Any] = {"variant": name, "start_seconds": fleet.start_seconds[0]}
                began = time.perf_counter()
                batch = await fleet.together(options.level, options.frames)
                row["frames_per_second"] = rounded(batch["frames"] / batch["seconds"])
                alone = await fleet.listeners(1, options.seconds / 2, options.frames)
                row["alone"] = listeners_row(alone)
                heard = await fleet.listeners(options.level, options.seconds, options.frames)
                row["listeners"] = listeners_row(heard)
                row["gpu"] = run.sampler.between(began, time.perf_counter())
        except (FleetError, TimeoutError) as error:
            found.fail(name, error)
            continue
        found.add(row)
        rate, share = row["frames_per_second"], row["listeners"]["gapless_share"]
        print(f"{name}: {rate} frames/s, {share:.1%} gapless", file=sys.stderr, flush=True)


async def engines(run: Run) -> None:
    """`--engines` engines on one GPU: more and more listeners until they run dry."""
    for count in run.options.engines:
        await _fleet(run, count, 1)


async def data_parallel(run: Run) -> None:
    """One engine a GPU on `--gpus` GPUs, against one: listeners stay with the engine that has
    their frames."""
    await _fleet(run, 1, 1)
    await _fleet(run, run.options.gpus, run.options.gpus)


async def _fleet(run: Run, count: int, gpus: int) -> None:
    options, found = run.options, sheet(run, "gpu-fleet", "gpu-fleet")
    key = {"engines": count, "gpus": gpus}
    levels = [n * gpus for n in options.streams if not found.has(streams=n * gpus, **key)]
    levels = [n for n in levels if n >= count]
    name = f"{count} engines on {gpus} GPUs"
    if not levels or name in found.result["errors"]:
        return
    run.need(70 * count + options.seconds)
    try:
        async with run.fleet(engines=count, gpus=gpus) as fleet:
            for streams in levels:
                run.need(2 * options.seconds)
                began = time.perf_counter()
                heard = await fleet.listeners(streams, options.seconds, options.frames)
                used = run.sampler.between(began, time.perf_counter())
                found.add({**key, **listeners_row(heard), "gpu": used})
                share = found.result["rows"][-1]["gapless_share"]
                print(f"{name}, {streams}: {share:.1%}", file=sys.stderr, flush=True)
    except (FleetError, TimeoutError) as error:
        found.fail(name, error)


@dataclass(frozen=True, slots=True)
class Part:
    """What can be asked for, and about how many seconds it takes on an H200."""

    run: Callable[[Run], Awaitable[None]]
    seconds: int


PARTS = {
    "capacity": Part(capacity, 420),
    "table": Part(table, 300),
    "engines": Part(engines, 600),
    "features": Part(features, 900),
    "quantisation": Part(quantisation, 660),
    "sweeps": Part(sweeps, 1800),
    "data_parallel": Part(data_parallel, 420),
}


async def measure(options: argparse.Namespace) -> None:
    """All parts asked for, while the budget lasts."""
    release = options.release or await asyncio.to_thread(random_release, options.size)
    deadline = time.monotonic() + options.budget
    with GpuSampler() as sampler:
        run = Run(options, release, deadline, sampler)
        for name in options.parts:
            began = time.monotonic()
            try:
                async with asyncio.timeout(max(0.0, deadline - began)):
                    await PARTS[name].run(run)
            except (OutOfTime, TimeoutError):
                print(f"{name}: stopped by the budget; the same command goes on", file=sys.stderr)
                continue
            except Exception:
                # The next part may run all the same, and a machine is not there for long.
                traceback.print_exc()
            print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(
        prog="python -m bench.gpu_slice", description=(__doc__ or "").splitlines()[0]
    )
    add = arguments.add_argument
    add("--parts", type=_parts, default=list(PARTS), help=f"of {', '.join(PARTS)}")
    add("--list", action="store_true", help="say what parts there are")
    add("--budget", type=float, default=1500.0, help="seconds for all of it")
    add("--out", type=Path, default=Path("docs/benchmarks"), help="folder of the results")
    add("--source", type=Path, help="folder that holds the reference's package ChatTTS")
    add("--dtype", default="float32", help="of the reference; it ships float32")
    add("--release", type=Path, help="a release directory instead of random weights")
    add("--size", choices=["full", "small"], default="full", help="of the random weights")
    add("--device", choices=["cuda", "cpu"], default="cuda")
    add("--streams", type=int, nargs="+", default=[1, 64, 128, 256, 384, 512, 768, 1024])
    add("--clients", type=int, nargs="+", default=[1, 4, 10, 32, 64])
    add("--level", type=int, default=256, help="listeners of variants")
    add("--engines", type=int, nargs="+", default=[1, 2, 4])
    add("--gpus", type=int, default=2)
    add("--frames", type=int, default=300, help="of every request")
    add("--seconds", type=float, default=12.0, help="of every window")
    add("--max-streams", type=int, default=1024)
    add("--memory-share", type=float, default=0.6, help="of a GPU's memory for its engines")
    add("--opus-threads", type=int, default=2, help="of every engine; 0: no Opus, nor libopus")
    add("--decode-threads", type=int, default=1)
    add("--eager", action="store_true", help="no CUDA graphs: starts faster, runs slower")
    return arguments


def _parts(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise argparse.ArgumentTypeError(f"no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    return names


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if options.list:
        for name, part in PARTS.items():
            what = " ".join((part.run.__doc__ or "").split("\n\n")[0].split())
            print(f"{name:14} about {part.seconds:4} s  {what}")
        return 0
    for name, value in (("HF_HUB_OFFLINE", "1"), ("VLLM_USE_FLASHINFER_SAMPLER", "0")):
        os.environ.setdefault(name, value)
    uvloop.run(measure(options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
