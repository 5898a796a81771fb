"""What becomes of listeners when three times as many come as the engine can carry.

    python -m bench.overload --seconds 120 --json docs/benchmarks/overload-cpu.json

A few users first, from whom the gateway learns what its engine carries; then three times that many
(or `--streams`), who never stop to think and, where refused, come back when told. Those let in
should hear no gap behind a 100 ms jitter buffer, and be nearly as many as the engine carries.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import uvloop
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from bench import load, machine
from bench.gateway_process import GatewayError
from bench.player import SAMPLE_RATE
from bench.scrape import metrics_url
from bench.stats import rounded, summary
from bench.texts import sentences
from bench.user import Habits, User
from gateway.settings import Settings

_LEARNERS, _LEARNING_SECONDS = 4, 15.0
_OVERLOAD = 3.0
_RAMP_SECONDS = 10.0


@dataclass(slots=True)
class Caller:
    """Comes until let in, then stays."""

    habits: Habits
    texts: Iterator[str]
    rng: random.Random
    ends_at: float
    user: User | None = None
    refusals: list[int] = field(default_factory=list)
    """Milliseconds after which to come back."""
    admitted_at: float | None = None

    async def live(self, starts_in: float) -> None:
        await asyncio.sleep(starts_in)
        while (left := self.ends_at - time.perf_counter()) > 0:
            self.user = user = User(self.habits, self.texts, self.rng, self.ends_at)
            began = time.perf_counter()
            await user.live(0.0)
            if user.turns or not user.errors or user.errors[-1] != "capacity":
                self.admitted_at = began
                return
            self.refusals.append(user.retry_after_ms or 0)
            await asyncio.sleep(min(left, self.refusals[-1] / 1000 * self.rng.uniform(1.0, 1.2)))


async def gauges(url: str) -> dict[str, float]:
    """`pressure`, `demand` and `capacity` of admission."""
    async with httpx.AsyncClient() as http:
        text = (await http.get(metrics_url(url), timeout=5)).text
    prefix = "voxgate_admission_"
    return {
        sample.name.removeprefix(prefix): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith(prefix)
    }


async def blocks(url: str) -> dict[str, float]:
    """How often the event loop was late by over 20 ms since the gateway started, and how often by
    its own work."""
    async with httpx.AsyncClient() as http:
        text = (await http.get(metrics_url(url), timeout=5)).text
    buckets = {
        (sample.name, sample.labels["le"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.endswith("_seconds_bucket") and "voxgate_loop" in sample.name
    }

    def above(kind: str) -> float:
        name = f"voxgate_loop_{kind}_seconds_bucket"
        return buckets[name, "+Inf"] - buckets[name, "0.02"]

    return {
        "looks": buckets["voxgate_loop_lag_seconds_bucket", "+Inf"],
        "above_20": above("lag"),
        "above_20_by_own_work": above("block"),
    }


async def crowd(options: argparse.Namespace, url: str, count: int, seconds: float) -> list[Caller]:
    """So many callers for so long."""
    habits = Habits(url, options.voice, think_seconds=0.0, turn_sentences=options.sentences)
    texts = sentences(options.language, random.Random(options.seed + count))
    rng, ends_at = random.Random(options.seed), time.perf_counter() + seconds
    callers = [Caller(habits, texts, random.Random(rng.random()), ends_at) for _ in range(count)]
    ramp = min(_RAMP_SECONDS, seconds / 4)
    tasks = [asyncio.create_task(each.live(rng.uniform(0.0, ramp))) for each in callers]
    await asyncio.sleep(seconds)
    now = time.perf_counter()
    for caller in callers:
        if caller.user is not None:
            caller.user.close_window(now)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return callers


async def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """The report. Raises `GatewayError`."""
    about = machine.about("overload")
    async with load.warm_gateway(options, console) as (url, _):
        with console.status("a few users first"):
            await crowd(options, url, _LEARNERS, _LEARNING_SECONDS)
        known = (await gauges(url))["capacity"]
        count = options.streams or math.ceil(_OVERLOAD * known)
        noted: list[dict[str, float]] = []

        async def note() -> None:
            while True:
                await asyncio.sleep(1.0)
                noted.append(await gauges(url))

        noting = asyncio.create_task(note())
        before = await blocks(url)
        with console.status(f"{count} users, room for {known:.1f}"):
            callers = await crowd(options, url, count, options.seconds)
        noting.cancel()
        await asyncio.gather(noting, return_exceptions=True)
        after = await blocks(url)
    heard = [caller.user for caller in callers if caller.user is not None and caller.user.turns]
    turns = [turn for user in heard for turn in user.turns]
    gaps = [gap for turn in turns for gap in turn.player.gaps]
    heard_seconds = sum(turn.player.samples for turn in turns) / SAMPLE_RATE
    refusals = [ms for caller in callers for ms in caller.refusals]
    return {
        "users": count,
        "capacity_before": rounded(known),
        "capacity": summary([each["capacity"] for each in noted]),
        "pressure": summary([each["pressure"] for each in noted]),
        "admitted": len(heard),
        "gapless": sum(user.gapless for user in heard),
        "turns": len(turns),
        "gapless_turns": sum(turn.player.gapless for turn in turns),
        "gaps_ms": summary(gaps, scale=1000),
        "dry_share": rounded(sum(gaps) / (heard_seconds + sum(gaps))) if turns else 0.0,
        "refusals": len(refusals),
        "event_loop": {name: after[name] - before[name] for name in after},
        "retry_after_ms": summary(refusals),
        "seconds": options.seconds,
        **about,
        "settings": load.settings_of(options),
    }


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(
        prog="python -m bench.overload", description=(__doc__ or "").splitlines()[0]
    )
    load.add_arguments(arguments)
    arguments.set_defaults(think=0.0, streams=None, seconds=120.0)
    return arguments


def main() -> int:
    options = parser().parse_args()
    console = Console(stderr=True)
    os.environ.setdefault("VOXGATE_CAPACITY_SHARE", str(Settings().capacity_share))
    try:
        result = uvloop.run(run(options, console))
    except GatewayError as error:
        console.print(f"[red]{error}")
        return 1
    except KeyboardInterrupt:
        return 130
    print(
        f"{result['admitted']} of {result['users']} let in, {result['gapless']} of them gapless;"
        f" {result['refusals']} refusals"
    )
    where: Path | None = options.json
    load.write_json(result, where)
    return 0


if __name__ == "__main__":
    sys.exit(main())
