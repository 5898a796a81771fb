"""How far streamed decoding of the released codec is from offline decoding, by look-ahead.

    python -m bench.codec_look_ahead [--frames 160] [--push 8]

Full ChatTTS sizes, weights drawn from a seed (the released weights may not be shipped): what is
measured is the reach of the networks' context, which the shapes decide for the most part. `path` is
what is decoded; `dB` is the energy of the offline waveform over that of the difference; `jump` is
the largest step between two samples where two pushes meet, as a share of the largest step anywhere
in the offline waveform.
"""

from __future__ import annotations

import argparse

import numpy as np
import numpy.typing as npt

from bench.codec_cost import full_size_codec
from bench.codec_random import random_codes, random_hidden
from engine.codec.model import Codec, Frames
from engine.codec.streaming import StreamingDecoder

LOOK_AHEADS = (0, 2, 4, 6, 8, 12, 16, 24, 52)
FRAME_MS = 1e3 / 46.875

Pcm = npt.NDArray[np.float32]


def stream(codec: Codec, frames: Frames, push: int, look_ahead: int) -> tuple[Pcm, list[int]]:
    """The streamed waveform and the samples at which pushes meet."""
    decoder = StreamingDecoder(codec, look_ahead, recorded=False)
    state = decoder.open()
    parts: list[Pcm] = []
    for at in range(0, len(frames), push):
        last = at + push >= len(frames)
        parts += decoder.push([(state, frames[at : at + push], last)])
    lengths = np.cumsum([len(part) for part in parts])
    seams = sorted({int(at) for at in lengths[:-1] if at})
    return np.concatenate(parts), seams


def decibels(offline: Pcm, streamed: Pcm) -> float:
    """Energy of the signal over that of the difference."""
    error = float(np.square(streamed - offline).sum())
    return float(10 * np.log10(float(np.square(offline).sum()) / max(error, 1e-30)))


def jump_share(offline: Pcm, streamed: Pcm, seams: list[int]) -> float:
    """Largest step at a seam over the largest step of the offline waveform."""
    steps = np.abs(np.diff(streamed))
    return float(max(steps[at - 1] for at in seams) / np.abs(np.diff(offline)).max())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--frames", type=int, default=160)
    parser.add_argument("--push", type=int, default=8)
    args = parser.parse_args()
    codec = full_size_codec()
    sources: dict[str, Frames] = {
        "hidden": random_hidden(args.frames, codec.width("hidden"), 3),
        "codes": random_codes(args.frames, codec.width("codes"), 625, 3),
    }
    print("| look-ahead frames | held back ms | hidden dB | hidden jump | codes dB | codes jump |")
    print("| --- | --- | --- | --- | --- | --- |")
    offline = {path: codec.decode(frames) for path, frames in sources.items()}
    for look_ahead in LOOK_AHEADS:
        cells = []
        for path, frames in sources.items():
            streamed, seams = stream(codec, frames, args.push, look_ahead)
            cells.append(f"{decibels(offline[path], streamed):.1f}")
            cells.append(f"{jump_share(offline[path], streamed, seams):.2f}")
        held = (look_ahead + 1) * FRAME_MS
        print(f"| {look_ahead} | {held:.0f} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
