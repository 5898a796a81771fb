"""Variants of one gateway, measured in turns: each in a process of its own, round after round.

A run takes as long as its budget allows and writes after every variant; the next run with the same
file goes on where it stopped, so that a comparison fits into short quiet hours of a machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import uvloop
from rich.console import Console

from bench import load, machine
from bench.first_audible import hear_first, latencies
from bench.gateway_process import GatewayError
from bench.texts import sentences
from bench.tuned import TunedGateway, Tuning
from gateway.client import GatewayError as ClientError
from gateway.client import VoiceClient

Measure = Callable[[str, Tuning, argparse.Namespace], Awaitable[dict[str, Any]]]
"""What is measured of a variant in one round."""

_REST_SECONDS = 0.05


class Store:
    """Results of all rounds in one JSON file. Raises `ValueError` when it holds something else."""

    def __init__(
        self, path: Path | None, kind: str, variants: Sequence[str], settings: Mapping[str, Any]
    ) -> None:
        self._path = path
        if path is not None and path.is_file():
            self.result: dict[str, Any] = json.loads(path.read_text())
            old = (self.result["kind"], self.result["settings"])
            if old != (kind, dict(settings)):
                raise ValueError(f"{path} was made with other settings: delete it, or name another")
        else:
            about = machine.about(kind)
            self.result = {**about, "settings": dict(settings), "rows": [], "errors": {}}
        known = {row["variant"] for row in self.result["rows"]}
        self.result["rows"] += [
            {"variant": name, "rounds": []} for name in variants if name not in known
        ]

    def next(self, variants: Sequence[str], rounds: int) -> str | None:
        """The variant that was measured least, the first of them; None when all have their rounds.

        Every other round goes through them backwards, so that a machine that grows slower slows
        none of them more.
        """
        counts = {row["variant"]: len(row["rounds"]) for row in self.result["rows"]}
        failed = self.result["errors"]
        left = [name for name in variants if counts[name] < rounds and name not in failed]
        if not left:
            return None
        turn = min(counts[name] for name in left)
        order = left if turn % 2 == 0 else left[::-1]
        return next(name for name in order if counts[name] == turn)

    def add(self, variant: str, measured: Mapping[str, Any]) -> None:
        row = next(row for row in self.result["rows"] if row["variant"] == variant)
        row["rounds"].append(dict(measured))
        self.write()

    def fail(self, variant: str, error: Exception) -> None:
        """A variant that cannot run is noted and not tried again."""
        self.result["errors"][variant] = f"{type(error).__name__}: {error}"[-2000:]
        self.write()

    def write(self) -> None:
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            draft = self._path.with_suffix(".part")
            draft.write_text(json.dumps(self.result, indent=1) + "\n")
            draft.replace(self._path)


def note(path: Path, table: str, variant: str, found: Mapping[str, Any]) -> None:
    """Put what was found of a variant apart from its rounds into a result that is there."""
    result = json.loads(path.read_text())
    result.setdefault(table, {})[variant] = dict(found)
    path.write_text(json.dumps(result, indent=1) + "\n")


async def run_rounds(
    store: Store,
    variants: Mapping[str, Tuning],
    options: argparse.Namespace,
    measure: Measure,
    console: Console,
) -> None:
    """Measure until all have their rounds, or no further one fits into the budget."""
    began, longest = time.monotonic(), 0.0
    while (name := store.next(list(variants), options.rounds)) is not None:
        if time.monotonic() - began + longest > options.budget:
            console.print("the budget is spent; the same command goes on from here")
            return
        started = time.monotonic()
        try:
            store.add(name, await measure(name, variants[name], options))
        except (GatewayError, ClientError, RuntimeError) as error:
            store.fail(name, error)
            console.print(f"{name}: failed: {str(error)[-300:]}", style="red", markup=False)
        longest = max(longest, time.monotonic() - started)
        console.print(f"{name}: {time.monotonic() - started:.0f} s", markup=False)


async def measure_gateway(name: str, tuning: Tuning, options: argparse.Namespace) -> dict[str, Any]:
    """One stream alone, then windows of streams that never pause. Raises `GatewayError`."""
    async with TunedGateway(tuning, options.serve) as gateway:
        await load.warm_up(gateway.url, options)
        alone = await hear_alone(gateway.url, options)
        windows = []
        for streams in options.levels:
            found = await load.row_of(options, streams, gateway.url, gateway.pid)
            del found["timeline"]
            windows.append(found)
        return {"alone": alone, "windows": windows}


async def hear_alone(url: str, options: argparse.Namespace) -> dict[str, Any]:
    """Latencies of sentences spoken one after the other."""
    texts = sentences(options.language, random.Random(options.seed))
    turns = []
    async with VoiceClient(url, voice=options.voice) as client:
        for _ in range(options.alone):
            turns.append(await hear_first(client, next(texts)))
            await asyncio.sleep(_REST_SECONDS)
    return latencies(turns)


def parser(prog: str, doc: str) -> argparse.ArgumentParser:
    """Options of a comparison of variants."""
    arguments = argparse.ArgumentParser(prog=f"python -m {prog}", description=doc.splitlines()[0])
    load.add_arguments(arguments)
    arguments.set_defaults(seconds=12.0, think=0.0, barge_in=0.0, slow_readers=0.0, ramp=2.0)
    add = arguments.add_argument
    add("--levels", type=int, nargs="+", default=[12], help="streams at once, window by window")
    add("--alone", type=int, default=20, help="sentences spoken alone first")
    add("--rounds", type=int, default=2, help="how often each variant is measured")
    add("--budget", type=float, default=220.0, help="seconds; the next run goes on from there")
    add("--only", nargs="+", help="these variants alone")
    return arguments


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    """What two runs into one file must agree on."""
    names = ("seconds", "levels", "alone", "pace", "language", "voice", "serve", "seed")
    return {name: getattr(options, name) for name in names}


def compare(
    kind: str,
    variants: Mapping[str, Tuning],
    options: argparse.Namespace,
    measure: Measure = measure_gateway,
    **more: Any,
) -> int:
    """The command of a comparison: run, write, show. Returns its exit code."""
    from bench.plots import PLOTS
    from bench.report import render

    console = Console(stderr=True)
    if options.only:
        variants = {name: variants[name] for name in options.only}
    try:
        store = Store(options.json, kind, list(variants), {**settings_of(options), **more})
        uvloop.run(run_rounds(store, variants, options, measure, console))
    except ValueError as error:
        console.print(str(error), style="red", markup=False)
        return 1
    except KeyboardInterrupt:
        return 130
    print(render(store.result))
    for path in options.plot:
        PLOTS[kind](store.result, path)
    return 0
