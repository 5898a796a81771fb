"""A load generator that behaves like users, in a process of its own: `voxgate bench`.

    voxgate bench --streams 12 --seconds 60 --json result.json
    python -m bench.load --streams 12 --seconds 60 --json result.json

Users arrive at random, send text at once or as a language model writes it, play what comes in real
time behind a 100 ms jitter buffer, now and then speak over it, think, and go on, until the window
ends; some read no faster than they must. Without `--url` it starts a gateway of its own and can
then also say what CPU, memory and GPU that took.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import re
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvloop
from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from bench import machine
from bench.gateway_process import GatewayError, GatewayProcess
from bench.player import JITTER_SECONDS
from bench.texts import sentences
from bench.user import Habits, User
from bench.window import result_of, run_window

_SLOW = 1.25
"""Times real time at which a slow reader takes packets: as fast as it must, and hardly faster."""
_LONGEST_SECONDS, _MOST_STREAMS = 3600.0, 10_000
_SECRET = re.compile("KEY|TOKEN|SECRET|PASSWORD")
"""Names of variables whose values have no place in a report."""


@asynccontextmanager
async def warm_gateway(
    options: argparse.Namespace, console: Console
) -> AsyncIterator[tuple[str, int | None]]:
    """URL of the gateway to measure, and its process when it is one of our own.

    Raises `GatewayError` when there is none, or it does not speak.
    """
    async with AsyncExitStack() as stack:
        url: str = options.url
        pid: int | None = None
        if options.url is None:
            gateway = GatewayProcess(options.serve)
            with console.status("starting a gateway"):
                await stack.enter_async_context(gateway)
            url, pid = gateway.url, gateway.pid
        await warm_up(url, options)
        yield url, pid


async def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """One window as `options` say. Raises `GatewayError`."""
    about = machine.about("load")
    async with warm_gateway(options, console) as (url, pid):
        progress = Progress(
            TextColumn("{task.description}"),
            *Progress.get_default_columns()[1:2],
            TimeElapsedColumn(),
            console=console,
            refresh_per_second=1,
            disable=options.quiet,
        )
        with progress:
            window = await run_window(
                habits_of(options, url),
                seconds=options.seconds,
                ramp=ramp_of(options),
                seed=options.seed,
                tongue=options.language,
                url=url,
                pid=pid,
                progress=progress,
            )
    return {**result_of(window, options.price), **about, "settings": settings_of(options)}


async def row_of(
    options: argparse.Namespace, streams: int, url: str, pid: int | None, **others: Any
) -> dict[str, Any]:
    """The result of a window of so many streams, one of several in a run: each has arrivals and
    texts of its own. `others`: of `run_window`, in place of what the options say."""
    options.streams = streams
    said: dict[str, Any] = {
        "seconds": options.seconds,
        "ramp": ramp_of(options),
        "seed": options.seed + streams,
        "tongue": options.language,
        "url": url,
        "pid": pid,
    }
    return result_of(await run_window(habits_of(options, url), **{**said, **others}))


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    """How a run was made, for its report."""
    names = ("pace", "tokens_per_second", "think", "sentences", "voice", "language", "serve")
    more = ("barge_in", "slow_readers", "price")
    return {
        "own_gateway": options.url is None,
        "jitter_ms": JITTER_SECONDS * 1000,
        **{name: getattr(options, name) for name in (*names, *more)},
        "environment": {
            name: value
            for name, value in sorted(os.environ.items())
            if name.startswith("VOXGATE_") and not _SECRET.search(name)
        },
    }


def ramp_of(options: argparse.Namespace) -> float:
    """Seconds within which all users arrive."""
    if options.ramp is not None:
        return float(options.ramp)
    return min(10.0, float(options.seconds) / 4)


def habits_of(options: argparse.Namespace, url: str) -> list[Habits]:
    """One per user: with `--pace mixed` every other one gets the text token by token."""
    whole = Habits(
        url,
        options.voice,
        think_seconds=options.think,
        turn_sentences=options.sentences,
        barge_in_share=options.barge_in,
    )
    written = replace(whole, tokens_per_second=options.tokens_per_second)
    kinds = {"whole": [whole], "tokens": [written], "mixed": [written, whole]}[options.pace]
    habits = list(itertools.islice(itertools.cycle(kinds), options.streams))
    slow = round(options.slow_readers * options.streams)
    return [replace(each, reads_at=_SLOW) for each in habits[:slow]] + habits[slow:]


async def warm_up(url: str, options: argparse.Namespace) -> None:
    """One short turn, so that nothing is measured for the first time. Raises `GatewayError`."""
    habits = Habits(url, options.voice, think_seconds=0, turn_sentences=1, turns=2)
    texts = sentences("both", random.Random(options.seed + 1))
    user = User(habits, texts, random.Random(0), time.perf_counter() + 30)
    await user.live(0)
    if user.errors:
        raise GatewayError(f"the gateway at {url} does not speak: {', '.join(user.errors)}")


def table(result: dict[str, Any]) -> Table:
    """What a person wants to see of a result."""
    shown = Table(title=f"{result['streams']} streams, {result['seconds']:g} s", show_header=False)
    shown.add_column(style="bold")
    shown.add_column(justify="right")
    for name, label in (
        ("first_packet_ms", "first packet p50 / p95 / p99"),
        ("first_audible_ms", "first audible packet p50 / p95 / p99"),
    ):
        values = result[name]
        text = " / ".join(_short(values[part]) for part in ("p50", "p95", "p99"))
        shown.add_row(label, f"{text} ms")
    shown.add_row("gapless streams", f"{result['gapless_share']:.1%}")
    shown.add_row("turns, unanswered", f"{result['turns']}, {result['unanswered']}")
    shown.add_row("playing at once (mean)", _short(result["playing_at_once"]["mean"]))
    lead = result["lead_s"]
    shown.add_row("lead p50", f"{_short(lead['p50'])} s")
    shown.add_row("speech a second", f"{result['audio_seconds_per_second']:g} s")
    if result["cpu_seconds_per_audio_second"] is not None:
        shown.add_row("CPU a second of speech", f"{result['cpu_seconds_per_audio_second']:g} s")
        shown.add_row("gateway: cores", f"{result['gateway_cpu_cores']:g}")
        shown.add_row("gateway: memory", f"{result['gateway_memory_mib']:g} MiB")
    shown.add_row("this load generator: cores", f"{result['load_generator_cpu_cores']:g}")
    if result["prefix_cache"] is not None and result["prefix_cache"]["hit_rate"] is not None:
        shown.add_row("prefix-cache hits", f"{result['prefix_cache']['hit_rate']:.1%}")
    if result["frames_per_second"] is not None:
        shown.add_row("frames a second", f"{result['frames_per_second']:g}")
    if result["cancel_ms"]["count"]:
        values = result["cancel_ms"]
        text = " / ".join(_short(values[part]) for part in ("p50", "p95", "p99"))
        shown.add_row("cancel to silence p50 / p95 / p99", f"{text} ms")
        freed = result["slots_freed"]
        if freed is not None and freed["count"]:
            text = f"{_short(freed['mean_ms'])} ms, {_short(freed['mean_steps'])} steps"
            shown.add_row("cancel to free slot, mean", text)
    if result["gpu"] is not None:
        used = result["gpu"]
        shown.add_row("GPU", f"{used['memory_gib']:g} GiB, {used['utilisation_percent']:g}% busy")
    if result["cost_per_speech_hour"] is not None:
        shown.add_row("cost of an hour of speech", f"{result['cost_per_speech_hour']:.4g}")
    elif result["machine_hours_per_speech_hour"] is not None:
        hours = result["machine_hours_per_speech_hour"]
        shown.add_row("machine hours an hour of speech", f"{hours:.4g}")
    for code, count in result["errors"].items():
        shown.add_row(f"error {code}", str(count))
    return shown


def _short(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def add_arguments(arguments: argparse.ArgumentParser) -> None:
    """The options of `voxgate bench`."""
    add = arguments.add_argument
    streams, seconds = _positive(int, _MOST_STREAMS), _positive(float, _LONGEST_SECONDS)
    add("--streams", type=streams, default=12, help="users at once")
    add("--seconds", type=seconds, default=60.0, help="length of the window")
    add("--url", help="a running gateway; otherwise one is started")
    add("--json", type=Path, help="write the result here")
    add("--pace", choices=["whole", "tokens", "mixed"], default="mixed", help="how text is sent")
    add("--tokens-per-second", type=_positive(float), default=30.0, help="of the language model")
    add("--think", type=float, default=1.0, help="mean seconds between two turns of a user")
    add("--sentences", type=_positive(int), default=3, help="of a turn, at most")
    add("--barge-in", type=_share, default=0.1, help="share of the turns that are interrupted")
    add("--slow-readers", type=_share, default=0.1, help="share of users who read just in time")
    add("--price", type=_positive(float), help="of an hour of this machine, for cost of speech")
    add("--plot", type=Path, action="append", default=[], help="PNG or SVG; may be given twice")
    add("--ramp", type=float, help="seconds within which all arrive (a quarter, at most 10)")
    add("--voice", default="default")
    add("--language", choices=["en", "zh", "both"], default="both")
    add("--seed", type=int, default=0, help="of arrivals and texts")
    add(
        "--serve",
        action="append",
        default=[],
        help="an argument for the `voxgate serve` that is started, as in --serve=--eager",
    )
    add("--quiet", action="store_true", help="no progress bar")


def _positive(kind: type[int] | type[float], most: float = float("inf")) -> Any:
    def parse(text: str) -> float:
        value = kind(text)
        if not 0 < value <= most:
            bound = "" if most == float("inf") else f" and at most {most:g}"
            raise argparse.ArgumentTypeError(f"{text} is not above zero{bound}")
        return value

    return parse


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is no share: it lies between 0 and 1")
    return value


def main(options: argparse.Namespace | None = None) -> int:
    """Run as `options` say, which may lack what has a default; None reads the command line."""
    parser = argparse.ArgumentParser(
        prog="voxgate bench", description=(__doc__ or "").splitlines()[0]
    )
    add_arguments(parser)
    options = parser.parse_args() if options is None else parser.parse_args([], options)
    console = Console(stderr=True)
    try:
        result = uvloop.run(run(options, console))
    except GatewayError as error:
        console.print(f"[red]{error}")
        return 1
    except KeyboardInterrupt:
        return 130
    console.print(table(result))
    write_json(result, options.json)
    if options.plot:
        from bench.plots import plot_load

        for path in options.plot:
            plot_load(result, path)
    return 0


def write_json(result: dict[str, Any], where: str | Path | None) -> None:
    """Write a result; nothing without a path."""
    if where is not None:
        path = Path(where)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=1, default=str) + "\n")


if __name__ == "__main__":
    sys.exit(main())
