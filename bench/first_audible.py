"""How soon one warm stream can be heard, alone on the machine.

    python -m bench.first_audible --json docs/benchmarks/first-audible-cpu.json

One session sends sentence after sentence, whole and one a turn. Once a sentence can be heard it is
cancelled, and the next one follows after a short rest: what counts here is the beginning. After a
long rest the caches of the processor have forgotten the model: `--rest 1` shows what that costs.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from contextlib import aclosing
from typing import Any

import uvloop
from rich.console import Console
from rich.progress import track

from bench import load, machine
from bench.audible import OnsetFinder
from bench.gateway_process import GatewayError
from bench.scrape import scrape
from bench.stats import summary
from bench.texts import sentences
from bench.turns import Turn
from gateway import client as gateway_client
from gateway.protocol import Caption


async def hear_first(client: gateway_client.VoiceClient, text: str) -> Turn:
    """Speak `text` until it can be heard; what was seen of it. Raises `GatewayError`."""
    turn = Turn(OnsetFinder())
    turn.send(time.perf_counter(), text)
    async with aclosing(client.speak(text)) as events:
        async for event in events:
            if isinstance(event, Caption):
                turn.caption(event.end)
            elif isinstance(event, gateway_client.Audio):
                turn.audio(event.at, event.samples, event.payload)
                if turn.heard:
                    break
    return turn


async def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """All sentences on one gateway; latencies in total and by language."""
    about = machine.about("first_audible")
    turns: dict[str, list[Turn]] = {"en": [], "zh": []}
    languages = ("en", "zh") if options.language == "both" else (options.language,)
    texts = {tongue: sentences(tongue, random.Random(options.seed)) for tongue in languages}
    async with load.warm_gateway(options, console) as (url, _pid):
        before = await scrape(url)
        async with gateway_client.VoiceClient(url, voice=options.voice) as client:
            for number in track(
                range(options.count), "one stream", console=console, disable=options.quiet
            ):
                tongue = languages[number % len(languages)]
                turns[tongue].append(await hear_first(client, next(texts[tongue])))
                await asyncio.sleep(options.rest)
        after = await scrape(url)
    everything = [turn for heard in turns.values() for turn in heard]
    return {
        **about,
        "streams": 1,
        "sentences": options.count,
        "unheard": sum(not turn.heard for turn in everything),
        **latencies(everything),
        "by_language": {tongue: latencies(turns[tongue]) for tongue in languages},
        "prefix_cache": (after - before).prefix_cache() if before and after else None,
        "settings": load.settings_of(options),
    }


def latencies(turns: list[Turn]) -> dict[str, Any]:
    """First packet, first audible packet and first audible sample in milliseconds."""
    return {
        f"{name}_ms": summary(
            [value for turn in turns if (value := getattr(turn, name)) is not None], scale=1000
        )
        for name in ("first_packet", "first_audible", "first_sound")
    }


def parser() -> argparse.ArgumentParser:
    """Command line of this benchmark."""
    arguments = argparse.ArgumentParser(
        prog="python -m bench.first_audible", description=(__doc__ or "").splitlines()[0]
    )
    load.add_arguments(arguments)
    arguments.set_defaults(pace="whole", think=0.0, sentences=1, streams=1)
    arguments.add_argument("--rest", type=float, default=0.05, help="seconds between sentences")
    arguments.add_argument("--count", type=int, default=200, help="sentences to speak")
    return arguments


def main() -> int:
    options = parser().parse_args()
    console = Console(stderr=True)
    try:
        result = uvloop.run(run(options, console))
    except (GatewayError, gateway_client.GatewayError) as error:
        console.print(f"[red]{error}")
        return 1
    except KeyboardInterrupt:
        return 130
    for name in ("first_packet_ms", "first_audible_ms", "first_sound_ms"):
        values = result[name]
        shown = ", ".join(f"{part} {values[part]}" for part in ("p50", "p95", "p99"))
        print(f"{name}: {shown} ({values['count']} sentences)")
    load.write_json(result, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
