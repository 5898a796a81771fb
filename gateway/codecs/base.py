"""What a codec of a byte stream is, and how its library is found."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Protocol

_PACKAGES = {
    "mp3lame": ("MP3", ("libmp3lame.so.0",), "libmp3lame0"),
    "vo-aacenc": ("AAC", ("libvo-aacenc.so.0",), "libvo-aacenc0"),
    "FLAC": ("FLAC", ("libFLAC.so.14", "libFLAC.so.12", "libFLAC.so.8"), "flac"),
}


class CodecMissingError(RuntimeError):
    """The library of a format is not installed on this machine."""


class Codec(Protocol):
    """16-bit mono samples, little-endian, in parts; bytes of one stream out."""

    def feed(self, samples: bytes) -> bytes:
        """What can be sent now; may be empty."""

    def finish(self) -> bytes:
        """The end of the stream. Nothing may be fed after it."""

    def close(self) -> None:
        """Free what the library holds; safe to repeat."""


@cache
def library(name: str) -> ctypes.CDLL:
    """A codec's shared library. Raises `CodecMissingError` with what to install."""
    what, files, package = _PACKAGES[name]
    for file in files:
        try:
            return ctypes.CDLL(file)
        except OSError:
            continue
    raise CodecMissingError(
        f"There is no {what} encoder on this machine. Debian, Ubuntu: apt-get install {package}"
    )


def missing_libraries() -> list[str]:
    """Debian packages without which a format is refused."""
    missing = []
    for name, (_, _, package) in _PACKAGES.items():
        try:
            library(name)
        except CodecMissingError:
            missing.append(package)
    return missing
