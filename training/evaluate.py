"""Speak held-out sentences through the real engine and judge what comes out.

    python -m training.evaluate --texts CORPUS/test_en.txt --lang en --voice default
    python -m training.evaluate --texts CORPUS --lang zh --voice jf_gongitsune --json zh.json

A text file has one sentence a line; of a folder, `test_en.txt` or `test_zh.txt` is read. English is
judged by word error (Whisper tiny.en), Mandarin by phone error (training.recogniser); both by what
goes wrong (no end, nothing said, far too long or short, clicks) and by DNSMOS.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from engine.api import SAMPLE_RATE, SAMPLES_PER_FRAME, Language, SpeechRequest, WordTime
from engine.checkpoints.mini import MiniCheckpoint
from engine.frontend.text import Reading
from engine.settings import EngineSettings
from engine.synthesizer import EngineSynthesizer, create
from training.judges import EnglishListener, Quality, clicks, is_silent, quality
from training.recogniser import PhonemeRecogniser
from training.scoring import Errors, phone_errors, plain_words, spoken_words

Pcm = npt.NDArray[np.float32]
SHORT, LONG = 0.6, 1.6
"""Share of the expected length beyond which words are missing, or the voice babbles."""


@dataclass(slots=True)
class Piece:
    """One sentence and what became of it."""

    text: str
    reading: Reading
    chunks: list[Pcm] = field(default_factory=list)
    words: list[WordTime] = field(default_factory=list)
    truncated: bool = False
    first_ms: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    heard: str = ""
    error: float = 0.0

    @property
    def pcm(self) -> Pcm:
        return np.concatenate([np.zeros(0, np.float32), *self.chunks])

    @property
    def seconds(self) -> float:
        return sum(map(len, self.chunks)) / SAMPLE_RATE


@dataclass(frozen=True, slots=True)
class Result:
    """The verdict on one run. Rates are percent, durations seconds."""

    language: str
    voice: str
    pieces: int
    seconds: float
    word_error: float | None
    word_error_spoken: float | None
    phone_error: float
    phone_error_toneless: float | None
    no_end: int
    silent: int
    babble: int
    cut_short: int
    clicks: int
    length_ratio: float
    dnsmos: tuple[float, float, float] | None
    cached_share: float
    worst: list[tuple[float, str, str]]


def sentences(paths: Sequence[Path], language: str, limit: int | None) -> list[str]:
    """Lines of the files, and of `test_<language>.txt` in the folders. Raises `OSError`."""
    files = [path / f"test_{language}.txt" if path.is_dir() else path for path in paths]
    lines = [line.strip() for file in files for line in file.read_text("utf-8").splitlines()]
    return [line for line in lines if line][:limit]


async def speak_all(
    engine: EngineSynthesizer,
    pieces: Sequence[Piece],
    *,
    voice: str,
    language: Language,
    speed: float,
    streams: int,
    seed: int,
    progress: Progress,
    in_context: bool = False,
) -> None:
    """Speak every piece, `streams` at a time; with `in_context` each follows the one before."""
    task = progress.add_task("speaking", total=len(pieces))
    context: object | None = None

    async def speak(number: int, piece: Piece) -> None:
        nonlocal context
        request = SpeechRequest(
            piece.text,
            voice=voice,
            language=language,
            speed=speed,
            seed=seed + number,
            context=context if in_context else None,
        )
        began = time.monotonic()
        async for chunk in engine.speak(request):
            piece.first_ms = piece.first_ms or 1e3 * (time.monotonic() - began)
            piece.chunks.append(chunk.pcm)
            piece.words += chunk.words
            if chunk.final:
                piece.truncated = chunk.truncated
                piece.prompt_tokens = chunk.prompt_tokens
                piece.cached_tokens = chunk.cached_tokens
                context = chunk.context
        progress.advance(task)

    waiting = list(enumerate(pieces))[::-1]

    async def work() -> None:
        while waiting:
            await speak(*waiting.pop())

    await asyncio.gather(*(work() for _ in range(1 if in_context else streams)))


def judge(
    pieces: Sequence[Piece],
    *,
    language: str,
    voice: str,
    expected: Sequence[float],
    read: Callable[[str], Reading],
    rated: int,
    progress: Progress,
) -> Result:
    """Listen to every piece."""
    task = progress.add_task("listening", total=len(pieces))
    words, spoken, phones, toneless = Errors(), Errors(), Errors(), Errors()
    english = EnglishListener() if language == "en" else None
    recogniser = PhonemeRecogniser.load() if language == "zh" else None
    scores: list[Quality] = []
    for piece in pieces:
        if english is not None:
            piece.heard = english.heard(piece.pcm)
            words.add(plain_words(piece.text), plain_words(piece.heard))
            said = spoken_words(piece.reading.phonemes)
            heard = spoken_words(read(piece.heard).phonemes) if plain_words(piece.heard) else []
            piece.error = spoken.add(said, heard)
            phones.add("".join(said), "".join(heard))
        if recogniser is not None:
            piece.heard = recogniser.heard(piece.pcm)
            piece.error = phone_errors(piece.reading.phonemes, piece.heard, phones, toneless)
        if len(scores) < rated and not is_silent(piece.pcm):
            scores.append(quality(piece.pcm))
        progress.advance(task)
    ratios = [piece.seconds / length for piece, length in zip(pieces, expected, strict=True)]
    worst = sorted(pieces, key=lambda piece: -piece.error)[:8]
    return Result(
        language=language,
        voice=voice,
        pieces=len(pieces),
        seconds=sum(piece.seconds for piece in pieces),
        word_error=words.percent if english else None,
        word_error_spoken=spoken.percent if english else None,
        phone_error=phones.percent,
        phone_error_toneless=toneless.percent if recogniser else None,
        no_end=sum(piece.truncated for piece in pieces),
        silent=sum(is_silent(piece.pcm) for piece in pieces),
        babble=sum(ratio > LONG for ratio in ratios),
        cut_short=sum(ratio < SHORT for ratio in ratios),
        clicks=sum(clicks(piece.chunks) for piece in pieces),
        length_ratio=float(np.mean(ratios)),
        dnsmos=tuple(np.mean(scores, axis=0).tolist()) if scores else None,
        cached_share=sum(p.cached_tokens for p in pieces)
        / max(1, sum(p.prompt_tokens for p in pieces)),
        worst=[(round(100 * piece.error, 1), piece.text, piece.heard) for piece in worst],
    )


def show(result: Result, console: Console) -> None:
    table = Table(title=f"{result.voice}, {result.language}: {result.pieces} pieces")
    table.add_column("measure")
    table.add_column("value", justify="right")
    for name, value in asdict(result).items():
        if name in ("language", "voice", "pieces", "worst") or value is None:
            continue
        numbers = value if isinstance(value, tuple) else (value,)
        shown = " / ".join(f"{n:.2f}" if isinstance(n, float) else str(n) for n in numbers)
        table.add_row(name.replace("_", " "), shown)
    console.print(table)
    for error, text, heard in result.worst:
        console.print(f"{error:6.1f}%  {text}\n         {heard}", markup=False, highlight=False)


async def evaluate(options: argparse.Namespace, console: Console) -> Result:
    folder = options.checkpoint
    checkpoint = MiniCheckpoint.load(folder) if folder else MiniCheckpoint.embedded()
    lines = sentences(options.texts, options.lang, options.limit)
    pieces = [Piece(line, checkpoint.read(line, options.lang)) for line in lines]
    engine = create(
        EngineSettings(
            checkpoint=folder, compiled=options.compiled, quantization=options.quantization
        )
    )
    with Progress(console=console) as progress:
        starting = progress.add_task("starting", total=1.0)
        await engine.start(
            lambda what, share: progress.update(starting, description=what, completed=share)
        )
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
                in_context=options.in_context,
            )
        finally:
            await engine.close()
        if options.wavs:
            write_wavs(options.wavs, pieces)
        expected = [
            checkpoint.expected_frames(p.reading, options.voice, options.speed)
            * SAMPLES_PER_FRAME
            / SAMPLE_RATE
            for p in pieces
        ]
        result = judge(
            pieces,
            language=options.lang,
            voice=options.voice,
            expected=expected,
            read=checkpoint.read,
            rated=options.rated,
            progress=progress,
        )
    if options.json:
        details = [
            {"text": p.text, "heard": p.heard, "error": p.error, "seconds": p.seconds,
             "expected": e, "phonemes": len(p.reading.phonemes), "first_ms": p.first_ms}
            for p, e in zip(pieces, expected, strict=True)
        ]  # fmt: skip
        written = {**asdict(result), "details": details}
        options.json.write_text(json.dumps(written, ensure_ascii=False, indent=1), "utf-8")
    return result


def write_wavs(folder: Path, pieces: Sequence[Piece]) -> None:
    import soundfile

    folder.mkdir(parents=True, exist_ok=True)
    for number, piece in enumerate(pieces):
        soundfile.write(folder / f"{number:04d}.wav", piece.pcm, SAMPLE_RATE)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m training.evaluate",
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
    parser.add_argument("--in-context", action="store_true", help="each follows the one before")
    parser.add_argument("--rated", type=int, default=50, help="pieces to rate by DNSMOS (slow)")
    parser.add_argument("--checkpoint", type=Path, help="a packed voice; default: the embedded")
    parser.add_argument("--quantization", choices=("auto", "none", "int8"), default="auto")
    parser.add_argument("--compiled", action=argparse.BooleanOptionalAction, default=None)
    parser.add_argument("--json", type=Path, help="write every number here")
    parser.add_argument("--wavs", type=Path, help="write the audio into this folder")
    options = parser.parse_args(arguments)
    console = Console(stderr=False)
    try:
        show(asyncio.run(evaluate(options, console)), console)
    except OSError as error:
        sys.exit(f"evaluate: {error}")


if __name__ == "__main__":
    main()
