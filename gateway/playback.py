"""The command-line audio players this machine may have."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import BinaryIO, Literal

from engine.api import SAMPLE_RATE


@dataclass(frozen=True, slots=True)
class Player:
    """A program that plays audio as it arrives on its standard input.

    `feed`: `wav`, or bare 24 kHz mono 16-bit little-endian samples (`raw`) for the players that
    read a WAV only from a file they can seek in.
    """

    name: str
    command: tuple[str, ...]
    feed: Literal["wav", "raw"]


_RATE = str(SAMPLE_RATE)
PLAYERS = (
    Player(
        "pw-play",
        ("pw-play", "--raw", "--rate", _RATE, "--channels", "1", "--format", "s16", "-"),
        "raw",
    ),
    Player(
        "paplay",
        ("paplay", "--raw", "--rate", _RATE, "--channels", "1", "--format", "s16le"),
        "raw",
    ),
    Player("aplay", ("aplay", "-q", "-"), "wav"),
    Player(
        "ffplay",
        ("ffplay", "-nodisp", "-autoexit", "-loglevel", "error", "-f", "wav", "-i", "-"),
        "wav",
    ),
    Player("play", ("play", "-q", "-t", "wav", "-"), "wav"),
)


def find_player() -> Player | None:
    """The first player that is installed, in the order of `PLAYERS`."""
    return next((player for player in PLAYERS if shutil.which(player.command[0])), None)


class PcmWriter:
    """Bare samples, for players that want no header."""

    format = "pcm_s16le"

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, payload: bytes, samples: int) -> None:
        self._file.write(payload)

    def close(self, samples: int | None = None) -> None:
        self._file.flush()
