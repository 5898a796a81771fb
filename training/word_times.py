"""How far word times are off: `python -m training.word_times --texts CORPUS --lang en`.

Speaks held-out sentences through the real engine and compares when it says each word began and
ended with where the recogniser finds the word's phonemes in the audio (forced alignment), which
hears the waveform, both ways in time, and never the codes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import Progress

from engine.align.words import spoken_words
from engine.api import SAMPLE_RATE
from engine.checkpoints.mini import MiniCheckpoint
from engine.settings import EngineSettings
from engine.synthesizer import create
from training.evaluate import Piece, sentences, speak_all
from training.recogniser import PhonemeRecogniser


class Distance(NamedTuple):
    """Of one word, in ms: how much later the engine tells its edges than the recogniser does."""

    text: str
    word: str
    start: float
    end: float


def distances(
    pieces: Sequence[Piece], checkpoint: MiniCheckpoint, recogniser: PhonemeRecogniser
) -> tuple[list[Distance], int]:
    """Of all words, and how many words the engine did not tell."""
    found: list[Distance] = []
    untold = 0
    for piece in pieces:
        reading = piece.reading
        words = spoken_words(
            piece.text,
            reading.phonemes,
            lambda word, language=reading.language: checkpoint.sounds(word, language),  # type: ignore[misc]
        )
        told = {(word.start, word.end): word for word in piece.words}
        edges = recogniser.edges(piece.pcm, reading.phonemes)
        for word in words:
            heard = told.get((word.start, word.end))
            if heard is None:
                untold += 1
                continue
            start, end = (
                (ours - int(theirs)) * 1000 / SAMPLE_RATE
                for ours, theirs in (
                    (heard.start_sample, edges[word.first]),
                    (heard.end_sample, edges[word.last]),
                )
            )
            found.append(Distance(piece.text, piece.text[word.start : word.end], start, end))
    return found, untold


def summary(found: Sequence[Distance], untold: int) -> dict[str, float]:
    """Medians and 90th percentiles of the distances' sizes, and the medians with their signs."""
    told: dict[str, float] = {"words": len(found), "untold": untold}
    for edge in ("start", "end"):
        values = np.array([getattr(distance, edge) for distance in found])
        told[f"{edge}_median_ms"] = float(np.median(np.abs(values)))
        told[f"{edge}_p90_ms"] = float(np.percentile(np.abs(values), 90))
        told[f"{edge}_lean_ms"] = float(np.median(values))
    return told


async def measure(options: argparse.Namespace, console: Console) -> list[Distance]:
    folder = options.checkpoint
    checkpoint = MiniCheckpoint.load(folder) if folder else MiniCheckpoint.embedded()
    lines = sentences(options.texts, options.lang, options.limit)
    pieces = [Piece(line, checkpoint.read(line, options.lang)) for line in lines]
    engine = create(EngineSettings(checkpoint=folder))
    with Progress(console=console) as progress:
        await engine.start()
        try:
            await speak_all(
                engine,
                pieces,
                voice=options.voice,
                language=options.lang,
                speed=options.speed,
                streams=options.streams,
                seed=options.seed,
                progress=progress,
            )
        finally:
            await engine.close()
    found, untold = distances(pieces, checkpoint, PhonemeRecogniser.load())
    for name, value in summary(found, untold).items():
        console.print(f"{name:>16} {value:.0f}")
    for distance in sorted(found, key=lambda d: -abs(d.start))[:5]:
        console.print(f"{distance.start:+8.0f} ms  {distance.word}: {distance.text}", markup=False)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m training.word_times",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--texts", type=Path, nargs="+", required=True)
    parser.add_argument("--lang", choices=("en", "zh"), required=True)
    parser.add_argument("--voice", default="default")
    parser.add_argument("--speed", type=float, default=1.0)
    parser.add_argument("--limit", type=int, help="only the first sentences")
    parser.add_argument("--streams", type=int, default=4, help="sentences spoken at once")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoint", type=Path, help="a packed voice; default: the embedded")
    parser.add_argument("--json", type=Path, help="write every distance here")
    options = parser.parse_args(arguments)
    try:
        found = asyncio.run(measure(options, Console()))
    except OSError as error:
        sys.exit(f"word_times: {error}")
    if options.json:
        told = [distance._asdict() for distance in found]
        options.json.write_text(json.dumps(told, ensure_ascii=False, indent=1), "utf-8")


if __name__ == "__main__":
    main()
