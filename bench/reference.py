"""The engine's language model against the reference ChatTTS loop: same weights, machine and run.

    python -m bench.reference --json docs/benchmarks/reference-cpu.json

Both generate the same number of frames for prompts of the same length with the same sampling, in
turns, round after round. The reference (PyPI `chattts` 0.2.5, AGPL-3.0+) lives in an environment of
its own, `.venv-reference`, made on the first run; `--source` names a folder that holds its package
instead, to run it under this Python.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, Self

import uvloop

from bench import machine
from bench.engine_runs import generate_frames
from bench.stats import rounded
from bench.tables import reference
from engine.language_model import LanguageModel
from engine.settings import EngineSettings, cores

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv-reference"
LOCK = ROOT / "requirements" / "reference.lock"
RELEASES = ROOT / "bench" / "out"
WORKER = Path(__file__).with_name("reference_worker.py")
SETTLE_SECONDS = 0.5
"""Between two measurements, so that the other side's waiting threads have gone to sleep."""


class ReferenceError(RuntimeError):
    """The reference could not be set up or failed; the message says what it printed."""


@dataclass(frozen=True, slots=True)
class Install:
    """A Python that can run the worker, and the folder with the reference's package."""

    python: Path
    source: Path


def prepare(source: Path | None) -> Install:
    """The reference's own environment, made if need be; or `source` under this Python."""
    if source is not None:
        return Install(Path(sys.executable), source)
    python = VENV / "bin" / "python"
    done = VENV / "installed"
    wanted = LOCK.read_text()
    if not done.is_file() or done.read_text() != wanted:
        print(f"setting up the reference in {VENV} (once; about a minute)", file=sys.stderr)
        _run([sys.executable, "-m", "venv", "--clear", str(VENV)])
        _run([str(python), "-m", "pip", "install", "-q", "--no-deps", "-r", str(LOCK)])
        done.write_text(wanted)
    paths = {"base": str(VENV), "platbase": str(VENV)}
    return Install(python, Path(sysconfig.get_path("purelib", "venv", paths)))


def random_release(size: str) -> Path:
    """A release directory with random weights, written once: `full` or `small`."""
    directory = RELEASES / f"random-{size}"
    if not (directory / "complete").is_file():
        print(f"writing random weights to {directory}", file=sys.stderr)
        _run(
            [
                *(sys.executable, "-m", "engine.checkpoints.random_release", str(directory)),
                *("--size", size, "--seed", "0"),
            ]
        )
        (directory / "complete").touch()
    return directory


def _run(command: list[str]) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReferenceError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}".strip())


class Worker:
    """The reference loop in its own process. Raises `ReferenceError` with what it printed."""

    def __init__(self, install: Install, release: Path, device: str, dtype: str) -> None:
        self._command = [str(install.python), str(WORKER), "--source", str(install.source)]
        self._command += ["--release", str(release), "--device", device, "--dtype", dtype]
        self.about: dict[str, Any] = {}

    async def __aenter__(self) -> Self:
        RELEASES.mkdir(parents=True, exist_ok=True)
        self._log = (RELEASES / "reference-worker.log").open("w+")
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=self._log,
        )
        try:
            self.about = await self._answer()
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        self._log.close()

    async def run(
        self, streams: int, frames: int, prompt: int, *, repeat: int = 1
    ) -> dict[str, Any]:
        """Generate; the answer has `seconds`, `frames`, `each_seconds` and `peak_bytes`."""
        request = {"streams": streams, "frames": frames, "prompt": prompt, "repeat": repeat}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        return await self._answer()

    async def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            tail = self._log.read()[-2000:]
            raise ReferenceError(f"the reference process ended:\n{tail}")
        answer: dict[str, Any] = json.loads(line)
        return answer


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure. `sequential`: requests the reference serves one after another."""

    streams: tuple[int, ...] = (1, 16)
    frames: int = 96
    prompt: int = 40
    rounds: int = 3
    sequential: int = 16


async def measure(
    lm: LanguageModel, worker: Worker, plan: Plan, text_ids: int
) -> list[dict[str, Any]]:
    """One row a stream count: frames/s of every round of both, medians and their ratios."""
    prompts: Any = {"prompt": plan.prompt, "text_ids": text_ids, "rng": random.Random(0)}
    ours: dict[int, list[float]] = {streams: [] for streams in plan.streams}
    theirs: dict[int, list[float]] = {streams: [] for streams in plan.streams}
    in_turn: list[float] = []

    async def engine(streams: int) -> None:
        await asyncio.sleep(SETTLE_SECONDS)
        batch = await generate_frames(lm, streams, plan.frames, **prompts)
        ours[streams].append(batch.frames_per_second)

    async def reference(streams: int) -> None:
        await asyncio.sleep(SETTLE_SECONDS)
        answer = await worker.run(streams, plan.frames, plan.prompt)
        theirs[streams].append(answer["frames"] / answer["seconds"])

    for streams in plan.streams:
        await generate_frames(lm, streams, 8, **prompts)
        await worker.run(streams, 8, plan.prompt)
    for turn in range(plan.rounds):
        for streams in plan.streams:
            for side in (engine, reference) if turn % 2 == 0 else (reference, engine):
                await side(streams)
        if plan.sequential:
            await asyncio.sleep(SETTLE_SECONDS)
            answer = await worker.run(1, plan.frames, plan.prompt, repeat=plan.sequential)
            in_turn.append(answer["frames"] / answer["seconds"])
    return rows(ours, theirs, in_turn, plan.sequential)


def rows(
    ours: dict[int, list[float]],
    theirs: dict[int, list[float]],
    in_turn: Sequence[float],
    sequential: int,
) -> list[dict[str, Any]]:
    """Medians over the rounds and ratios; the row of `sequential` streams gets the ratio to it."""
    table = []
    for streams, rates in ours.items():
        row: dict[str, Any] = {
            "streams": streams,
            "engine_frames_per_second": rounded(median(rates)),
            "reference_frames_per_second": rounded(median(theirs[streams])),
            "times_reference": rounded(median(rates) / median(theirs[streams]), 3),
            "engine_rounds": [rounded(rate) for rate in rates],
            "reference_rounds": [rounded(rate) for rate in theirs[streams]],
        }
        if streams == sequential and in_turn:
            row["reference_one_after_another_frames_per_second"] = rounded(median(in_turn))
            row["times_one_after_another"] = rounded(median(rates) / median(in_turn), 3)
            row["one_after_another_rounds"] = [rounded(rate) for rate in in_turn]
        table.append(row)
    return table


async def compare(options: argparse.Namespace) -> dict[str, Any]:
    """Set both sides up, measure, and describe it all."""
    from engine.checkpoints import load_checkpoint
    from engine.machine import language_model_settings, resolve_device

    plan = Plan(
        streams=tuple(options.streams),
        frames=options.frames,
        prompt=options.prompt,
        rounds=options.rounds,
        sequential=options.sequential,
    )
    install = await asyncio.to_thread(prepare, options.source)
    release = options.release or await asyncio.to_thread(random_release, options.size)
    settings = EngineSettings(checkpoint=release, max_streams=max(plan.streams))
    device = resolve_device(settings.device)
    # Held on to: the model directory lives as long as the checkpoint does.
    checkpoint = load_checkpoint(settings)
    model_dir = checkpoint.model_dir()
    lm_settings = language_model_settings(settings, device, model_dir)
    if device == "cpu" and options.cores == "all":
        lm_settings = replace(lm_settings, cores=tuple(cores()))
    text_ids = json.loads((model_dir / "config.json").read_text())["voxgate"]["text_vocab"]
    about = machine.about("reference")
    lm = LanguageModel(lm_settings)
    await lm.start()
    try:
        async with Worker(install, release, device, options.dtype) as worker:
            started = time.perf_counter()
            table = await measure(lm, worker, plan, text_ids)
            about_reference = worker.about
    finally:
        await lm.close()
    return {
        **about,
        "rows": table,
        "settings": {
            "frames": plan.frames,
            "prompt": plan.prompt,
            "rounds": plan.rounds,
            "size": options.size if options.release is None else str(options.release),
            "engine": {
                "dtype": lm_settings.dtype,
                "compiled": lm_settings.compiled,
                "cores": lm_settings.cores,
                "device": device,
            },
            "reference": about_reference,
        },
        "seconds": rounded(time.perf_counter() - started),
    }


def parser() -> argparse.ArgumentParser:
    """Command line of this benchmark."""
    arguments = argparse.ArgumentParser(
        prog="python -m bench.reference", description=(__doc__ or "").splitlines()[0]
    )
    arguments.add_argument("--streams", type=int, nargs="+", default=[1, 16])
    arguments.add_argument("--frames", type=int, default=96, help="of every request")
    arguments.add_argument("--prompt", type=int, default=40, help="text ids of every prompt")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--sequential", type=int, default=16, help="0: leave out")
    arguments.add_argument("--size", choices=["full", "small"], default="full")
    arguments.add_argument("--release", type=Path, help="a release directory to use instead")
    arguments.add_argument("--source", type=Path, help="folder that holds the package ChatTTS")
    arguments.add_argument("--dtype", default="float32", help="of the reference; it ships float32")
    arguments.add_argument("--cores", choices=["all", "served"], default="all", help=_CORES_HELP)
    arguments.add_argument("--json", type=Path)
    return arguments


_CORES_HELP = "of the engine on a CPU: all, as the reference has, or those it gets while serving"


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        result = uvloop.run(compare(options))
    except ReferenceError as error:
        print(error, file=sys.stderr)
        return 1
    print(reference(result))
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
