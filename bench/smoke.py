"""A look at speed in a few seconds: ratios, so that a change that makes something slower is seen.

    python -m bench.smoke            # beside what was recorded
    python -m bench.smoke --record   # after a change that was meant to change them

What each part costs is told in units of a fixed matrix product on one core of the same machine in
the same seconds, which takes the machine out of it, near enough. Nothing fails: tests print it.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from bench.stats import rounded

RECORD = Path(__file__).resolve().parent.parent / "docs" / "benchmarks" / "smoke" / "ratios.json"
_ROUNDS = 5
_SECONDS = 0.08


def ratios() -> dict[str, float]:
    """Each part's cost in units, by its name."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        parts = _parts()
        costs: dict[str, list[float]] = {name: [] for name in parts}
        for _ in range(_ROUNDS):
            # In turns, so that all meet the same machine.
            unit = _cost(_unit)
            for name, call in parts.items():
                costs[name].append(_cost(call) / unit)
        return {name: rounded(min(values), 3) for name, values in costs.items()}
    finally:
        torch.set_num_threads(threads)


_LEFT, _RIGHT = (torch.full((512, 512), 0.5) for _ in range(2))


def _unit() -> None:
    torch.mm(_LEFT, _RIGHT)


def _cost(call: Callable[[], object]) -> float:
    """CPU seconds of the fastest call within a little while."""
    best, ends = float("inf"), time.thread_time() + _SECONDS
    while time.thread_time() < ends:
        began = time.thread_time()
        call()
        best = min(best, time.thread_time() - began)
    return best


def _parts() -> dict[str, Callable[[], object]]:
    from bench.codec_cost import embedded_codec
    from bench.codec_random import random_codes
    from bench.texts import sentences
    from engine.codec.streaming import StreamingDecoder
    from engine.lead import Leads, Standing
    from gateway.cutting import TurnText
    from gateway.opus import OpusEncoder

    codec = embedded_codec()
    decoder = StreamingDecoder(codec)
    width = codec.width(codec.default_path)
    frames = random_codes(8, width, codec.config.quantizer.codebook_size, 0)
    states = [decoder.open() for _ in range(12)]
    encoder = OpusEncoder(20, 32_000, 5)
    noise = np.random.default_rng(0).standard_normal(encoder.frame_samples)
    sound = (0.05 * noise).astype(np.float32)
    text = " ".join(next(sentences("both", random.Random(0))) for _ in range(4))
    leads = Leads()
    standings = [Standing(str(number), 0, 40 + number) for number in range(24)]

    def cut() -> None:
        turn = TurnText()
        for at in range(0, len(text), 4):
            turn.feed(text[at : at + 4])
        turn.finish()

    return {
        "codec, first 2 frames of one stream": lambda: decoder.push(
            [(states[0], frames[:2], False)]
        ),
        "codec, 8 frames of 12 streams": lambda: decoder.push([(s, frames, False) for s in states]),
        "codec, 8 frames of 12 streams one by one": lambda: [
            decoder.push([(s, frames, False)]) for s in states
        ],
        "Opus, one packet": lambda: encoder.encode(sound),
        "cutting, four sentences token by token": cut,
        "pacing, a step of 24 requests": lambda: leads.resting(standings, False, 1.0),
    }


def lines(now: dict[str, float], recorded: dict[str, float]) -> list[str]:
    """Each ratio beside the one recorded."""
    shown = []
    for name, value in now.items():
        before = recorded.get(name)
        beside = f"{value / before:6.2f} of what was recorded" if before else "   not recorded"
        shown.append(f"{name:42} {value:8.3g} units {beside}")
    return shown


def recorded() -> dict[str, float]:
    """What was recorded last."""
    found: dict[str, float] = json.loads(RECORD.read_text())
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.smoke", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    now = ratios()
    if options.record:
        RECORD.parent.mkdir(parents=True, exist_ok=True)
        RECORD.write_text(json.dumps(now, indent=1) + "\n")
    print("\n".join(lines(now, recorded())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
