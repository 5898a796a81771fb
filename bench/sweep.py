"""One setting through its range: speed, first sound and gaps at each value.

    python -m bench.sweep stream_interval --json docs/benchmarks/sweep-stream_interval-cpu.json
    python -m bench.sweep streams --json docs/benchmarks/sweep-streams-cpu.json

`streams` sweeps the number of listeners of the product as it ships until it breaks, and its memory.
Stops within its budget and goes on from there when called again; see `bench.variants`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from bench import variants
from bench.tuned import Tuning

_LEVELS = (1, 2, 4, 8, 12, 16, 20, 24, 32)

SWEEPS: dict[str, tuple[tuple[Any, ...], Callable[[Any], Tuning]]] = {
    "streams": ((1,), lambda _: Tuning()),
    "max_num_seqs": ((4, 8, 16, 32, 64), lambda value: Tuning(engine={"max_streams": value})),
    "block_size": ((32, 64, 128), lambda value: Tuning(engine={"block_size": value})),
    "max_num_batched_tokens": (
        (64, 128, 256, 512, 2048),
        lambda value: Tuning(engine={"max_num_batched_tokens": value}),
    ),
    "stream_interval": ((1, 2, 4, 8), lambda value: Tuning(engine={"stream_interval": value})),
    "frames_per_decode": (
        (4, 8, 16, 24, 48),
        lambda value: Tuning(chunks={"largest": value}),
    ),
    "opus_complexity": (
        (0, 2, 5, 8, 10),
        lambda value: Tuning(serve=("--opus-complexity", str(value))),
    ),
    "piece_seconds": ((3.0, 6.0, 12.0), lambda value: Tuning(lengths={"max_seconds": value})),
    "context_pieces": ((0, 1, 2, 3), lambda value: Tuning(context_pieces=value)),
}
"""Values, and what each changes. The gateway decides nothing here: the defaults are among them."""

GPU_SWEEPS: dict[str, tuple[tuple[Any, ...], Callable[[Any], Tuning]]] = {
    "max_num_seqs": ((64, 256, 512, 1024), lambda value: Tuning(engine={"max_streams": value})),
    "block_size": ((16, 32, 64), lambda value: Tuning(engine={"block_size": value})),
    "max_num_batched_tokens": (
        (1024, 2048, 8192, 16384),
        lambda value: Tuning(engine={"max_num_batched_tokens": value}),
    ),
    "gpu_memory_utilization": (
        (0.1, 0.3, 0.6, 0.9),
        lambda value: Tuning(engine={"gpu_memory_utilization": value}),
    ),
    "stream_interval": ((1, 2, 4, 8, 16), lambda value: Tuning(engine={"stream_interval": value})),
    "frames_per_decode": ((8, 24, 48), lambda value: Tuning(chunks={"largest": value})),
}
"""The same without a gateway, for `bench.gpu_slice`."""

DEFAULTS = {
    "max_num_seqs": 32,
    "block_size": 32,
    "max_num_batched_tokens": 2048,
    "stream_interval": 2,
    "frames_per_decode": 24,
    "opus_complexity": 5,
    "piece_seconds": 12.0,
    "context_pieces": 2,
}


def parser() -> argparse.ArgumentParser:
    """Command line of a sweep."""
    arguments = variants.parser("bench.sweep", __doc__ or "")
    arguments.add_argument("name", choices=SWEEPS)
    arguments.set_defaults(rounds=1, levels=None, seconds=10.0)
    return arguments


def main() -> int:
    options = parser().parse_args()
    values, tune = SWEEPS[options.name]
    if options.levels is None:
        options.levels = list(_LEVELS) if options.name == "streams" else [16]
    if options.name == "streams":
        tunings = {"as shipped": Tuning()}
    else:
        tunings = {f"{value:g}": tune(value) for value in values}
    return variants.compare(
        "sweep", tunings, options, name=options.name, default=DEFAULTS.get(options.name)
    )


if __name__ == "__main__":
    sys.exit(main())
