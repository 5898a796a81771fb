"""How many streams at once a gateway carries without a gap.

    python -m bench.capacity --json docs/benchmarks/capacity-cpu.json

Windows with more and more users who never stop to think, so that every stream is one that plays;
a window passes when at least 99% of its streams never ran dry, failed or went unanswered. After the
first one that does not, the space between is halved until the largest that passes is known.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop
from rich.console import Console

from bench import load, machine
from bench.gateway_process import GatewayError

PASSING_SHARE = 0.99


async def largest_passing(
    first: int, step: int, limit: int, passes: Callable[[int], Awaitable[bool]]
) -> int:
    """The largest tried number of streams that passes, at most `limit`; 0 when `first` fails.

    Goes up by `step`; between the last that passed and the first that failed it halves the space.
    """
    good, bad = 0, limit + 1
    streams = min(first, limit)
    while good + 1 < bad:
        if await passes(streams):
            good = streams
            if good == limit:
                return good
        else:
            bad = streams
            if good == 0:
                return 0
        streams = min(good + step, limit) if bad > limit else (good + bad) // 2
    return good


async def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """All windows on one gateway; the report has one row for each, and `largest_gapless`."""
    about = machine.about("capacity")
    rows: list[dict[str, Any]] = []
    async with load.warm_gateway(options, console) as (url, pid):

        async def passes(streams: int) -> bool:
            row = await load.row_of(options, streams, url, pid)
            rows.append(row)
            passed = bool(row["gapless_share"] >= PASSING_SHARE)
            console.print(
                f"{streams} streams: {row['gapless_share']:.1%} gapless,"
                f" first audible p50 {row['first_audible_ms']['p50']} ms,"
                f" {row['audio_seconds_per_second']:g} s of speech a second"
                f" -> {'pass' if passed else 'fail'}"
            )
            return passed

        largest = await largest_passing(options.start, options.step, options.limit, passes)
    rows.sort(key=lambda row: int(row["streams"]))
    return {
        **about,
        "largest_gapless": largest,
        "passing_share": PASSING_SHARE,
        "rows": rows,
        "settings": load.settings_of(options),
    }


def parser() -> argparse.ArgumentParser:
    """Command line of this benchmark: that of the load generator, and where to start and stop."""
    arguments = argparse.ArgumentParser(
        prog="python -m bench.capacity", description=(__doc__ or "").splitlines()[0]
    )
    load.add_arguments(arguments)
    arguments.set_defaults(think=0.0, barge_in=0.0, slow_readers=0.0)
    arguments.add_argument("--start", type=int, default=8, help="streams of the first window")
    arguments.add_argument("--step", type=int, default=4)
    arguments.add_argument("--limit", type=int, default=64)
    return arguments


def main() -> int:
    options = parser().parse_args()
    console = Console(stderr=True)
    try:
        result = uvloop.run(run(options, console))
    except GatewayError as error:
        console.print(f"[red]{error}")
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"largest number of gapless streams: {result['largest_gapless']}")
    load.write_json(result, options.json)
    if options.plot:
        from bench.plots import plot_capacity

        for path in options.plot:
            plot_capacity(result, path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
