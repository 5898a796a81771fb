"""Where speech goes: a file, standard output, or the speakers."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, cast

from engine.api import SAMPLE_RATE
from gateway.codecs import (
    AacEncoder,
    Codec,
    CodecMissingError,
    CodecWriter,
    FlacEncoder,
    Mp3Encoder,
)
from gateway.commands.console import CommandError
from gateway.containers import OggOpusWriter, RawOpusWriter, WavWriter, Writer
from gateway.playback import PcmWriter, Player, find_player
from gateway.webm import WebmOpusWriter

Kind = Literal["ogg", "webm", "opus", "wav", "mp3", "flac", "aac", "raw"]
ENDINGS: dict[str, Kind] = {
    ".ogg": "ogg",
    ".oga": "ogg",
    ".webm": "webm",
    ".wav": "wav",
    ".opus": "opus",
    ".mp3": "mp3",
    ".flac": "flac",
    ".aac": "aac",
}
_LOSSY_BITRATE = 64_000
_ENCODERS: dict[str, Callable[[], Codec]] = {
    "mp3": lambda: Mp3Encoder(SAMPLE_RATE, _LOSSY_BITRATE),
    "flac": lambda: FlacEncoder(SAMPLE_RATE),
    "aac": lambda: AacEncoder(SAMPLE_RATE, _LOSSY_BITRATE),
}


@dataclass(frozen=True, slots=True)
class Output:
    """Where to write and what. Nothing is opened until `open` is entered.

    `live`: someone listens while it is made.
    """

    kind: Kind
    live: bool
    open: Callable[[], AbstractContextManager[BinaryIO]]

    @property
    def wire_format(self) -> Literal["opus", "pcm_s16le"]:
        return "opus" if self.kind in ("ogg", "webm", "opus") else "pcm_s16le"

    def writer(self, file: BinaryIO, pre_skip: int) -> Writer:
        match self.kind:
            case "ogg":
                return OggOpusWriter(file, pre_skip)
            case "webm":
                return WebmOpusWriter(file, pre_skip)
            case "opus":
                return RawOpusWriter(file)
            case "wav":
                return WavWriter(file)
            case "raw":
                return PcmWriter(file)
            case _:
                return CodecWriter(file, _ENCODERS[self.kind]())


def add_output_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="write FILE instead of playing: .ogg or .webm (Opus), .wav, .mp3, .flac, .aac, .opus "
        "(bare packets, each after its length as 16 bits little-endian), or - for standard output",
    )
    parser.add_argument(
        "--format",
        choices=("ogg", "webm", "wav", "mp3", "flac", "aac", "opus"),
        help="format of the output when its name does not tell; default: ogg",
    )


def choose_output(arguments: Namespace) -> Output:
    """Raises `CommandError` when the format is unknown, or when nothing here can play."""
    target = arguments.output
    if target is None:
        return speaker_output(" Write a file with -o out.ogg, or:")
    if target == "-":
        if sys.stdout is None or sys.stdout.isatty():
            raise CommandError(
                "Standard output is closed or is a terminal: redirect it, or use -o FILE.", 2
            )
        file = sys.stdout.buffer
        _require_encoder(arguments.format)
        return Output(arguments.format or "ogg", False, lambda: contextlib.nullcontext(file))
    path = Path(target)
    kind = arguments.format or ENDINGS.get(path.suffix.lower())
    if kind is None:
        raise CommandError(
            f"{target}: no format has this ending. Use {', '.join(ENDINGS)}, or --format.",
            2,
        )
    _require_encoder(kind)
    return Output(kind, False, lambda: open_file(path))


def _require_encoder(kind: str | None) -> None:
    """Before anything is spoken. Raises `CommandError` with what to install."""
    try:
        if kind in _ENCODERS:
            _ENCODERS[kind]().close()
    except CodecMissingError as missing:
        raise CommandError(f"{missing}, or write .ogg or .wav.") from missing


def speaker_output(or_else: str = "") -> Output:
    """The speakers. Raises `CommandError` when nothing here can play."""
    player = find_player()
    if player is None:
        raise CommandError(
            "No audio player is installed here (pw-play, paplay, aplay, ffplay, play)."
            f"{or_else or ' To get one:'} sudo apt-get install alsa-utils"
        )
    return Output(player.feed, True, lambda: speakers(player))


@contextlib.contextmanager
def open_file(path: Path) -> Iterator[BinaryIO]:
    try:
        file = path.open("wb")
    except OSError as failure:
        raise CommandError(f"{path} cannot be written: {failure.strerror}.") from failure
    with file:
        yield file


@contextlib.contextmanager
def speakers(player: Player) -> Iterator[BinaryIO]:
    """The player's standard input; leaving waits until everything was heard."""
    with subprocess.Popen(
        player.command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        try:
            yield cast(BinaryIO, process.stdin)
            process.stdin.close()
        except BrokenPipeError:
            # What it says about its end follows; closing would only try to write again.
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        except BaseException:
            process.kill()
            raise
        said = process.stderr.read().decode(errors="replace").strip()
    if process.returncode:
        raise CommandError(
            f"{player.name} could not play: {said or f'it ended with {process.returncode}'}. "
            "Write a file with -o out.ogg instead."
        )
