"""What streaming decode costs: ms of one core for a second of audio.

    python -m bench.codec_cost [--threads 1] [--device cpu] [--codec embedded|full] ...

Each row decodes pushes of so many frames from so many streams, first all streams in one call
(`batched`), then one stream a call (`one by one`). `push_ms` is how long a listener waits for a
batched call. The fastest of several rounds counts: the machine may be busy with other work.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

import engine.voices
from bench.codec_random import Array, dull, random_codes, random_hidden, random_state
from engine.codec.config import released_config
from engine.codec.model import Codec, Frames
from engine.codec.names import expected_tensors
from engine.codec.streaming import StreamingDecoder

FRAMES_PER_SECOND = 46.875
COMBINATIONS = [(1, 2), (1, 4), (1, 8), (1, 24), (4, 4), (12, 4), (12, 8), (12, 24), (24, 8)]


@dataclass(frozen=True, slots=True)
class Cost:
    streams: int
    frames: int
    batched: float
    """ms for a second of audio, all streams in one call."""
    one_by_one: float
    push_ms: float


def embedded_codec() -> Codec:
    """The embedded voice's codec."""
    folder = Path(engine.voices.__file__).parent / "mini"
    settings = json.loads((folder / "config.json").read_text("utf-8"))
    return Codec.from_mini(settings, load_file(folder / "codec.safetensors"))


def full_size_codec() -> Codec:
    """A codec of the released ChatTTS sizes with random weights and a spectrum that falls."""
    config = released_config()

    states = {
        "dvae": random_state(expected_tensors(config, "dvae"), 1),
        "decoder": random_state(expected_tensors(config, "decoder"), 1),
        "vocos": dull(random_state(expected_tensors(config, "vocos"), 1)),
    }
    tensors = {part: _tensors(state) for part, state in states.items()}
    return Codec.released(tensors["dvae"], tensors["decoder"], tensors["vocos"], config)


def _tensors(state: dict[str, Array]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(weights) for name, weights in state.items()}


def fastest(call: Callable[[], object], clock: Callable[[], float], rounds: int) -> float:
    """Seconds of the fastest of `rounds` calls after two to warm up."""
    for _ in range(2):
        call()
    best = float("inf")
    for _ in range(rounds):
        start = clock()
        call()
        best = min(best, clock() - start)
    return best


def measure(
    codec: Codec,
    streams: int,
    frames: int,
    *,
    look_ahead: int,
    clock: Callable[[], float],
    rounds: int,
) -> Cost:
    decoder = StreamingDecoder(codec, look_ahead)
    width = codec.width(codec.default_path)
    source: list[Frames] = [
        random_codes(frames, width, codec.config.quantizer.codebook_size, seed)
        if codec.default_path == "codes"
        else random_hidden(frames, width, seed)
        for seed in range(streams)
    ]
    states = [decoder.open() for _ in range(streams)]

    def together() -> None:
        decoder.push([(s, f, False) for s, f in zip(states, source, strict=True)])

    def apart() -> None:
        for state, new in zip(states, source, strict=True):
            decoder.push([(state, new, False)])

    audio = streams * frames / FRAMES_PER_SECOND
    batched, single = fastest(together, clock, rounds), fastest(apart, clock, rounds)
    return Cost(streams, frames, 1e3 * batched / audio, 1e3 * single / audio, 1e3 * batched)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--codec", choices=("embedded", "full"), default="embedded")
    parser.add_argument("--blocks", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--look-ahead", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    codec = (embedded_codec() if args.codec == "embedded" else full_size_codec()).to(args.device)
    codec = codec.with_blocks_in(getattr(torch, args.blocks))
    # CPU time of the decoding thread leaves out what other processes took from the core.
    one_thread = args.threads == 1 and args.device == "cpu"
    clock = time.thread_time if one_thread else time.perf_counter
    print("streams frames   batched  one by one   push")
    costs = []
    for streams, frames in COMBINATIONS:
        cost = measure(
            codec, streams, frames, look_ahead=args.look_ahead, clock=clock, rounds=args.rounds
        )
        costs.append(cost)
        print(
            f"{streams:7d} {frames:6d} {cost.batched:7.2f} ms {cost.one_by_one:8.2f} ms "
            f"{cost.push_ms:6.2f} ms"
        )
    if args.json:
        args.json.write_text(json.dumps([asdict(c) for c in costs], indent=1))


if __name__ == "__main__":
    main()
