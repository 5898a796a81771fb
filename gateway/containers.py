"""Files of speech: Ogg Opus (RFC 3533, RFC 7845), WAV, and bare Opus packets; WebM has its module.

Writers take what the wire brings, so nothing is decoded or encoded again. All write forwards only,
so they work on pipes; WAV sizes are filled in afterwards where the file can seek.
"""

from __future__ import annotations

import contextlib
import io
import struct
from collections.abc import Iterator
from typing import BinaryIO, Protocol

from engine.api import SAMPLE_RATE

OPUS_RATE = 48_000
_UP = OPUS_RATE // SAMPLE_RATE
_PAGE_SAMPLES = SAMPLE_RATE // 2
_FIRST, _LAST = 2, 4
_UNKNOWN_SIZE = 0xFFFFFFFF


class Writer(Protocol):
    """Packets of one or more turns, one after the other, into one file."""

    format: str
    """The wire format it takes: `opus` or `pcm_s16le`."""

    def write(self, payload: bytes, samples: int) -> None:
        """One packet of `samples` samples at 24 kHz."""

    def close(self, samples: int | None = None) -> None:
        """End the file; `samples` is the exact length without pre-skip, where known."""


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        value = byte << 24
        for _ in range(8):
            value = (value << 1) ^ (0x04C11DB7 if value & 0x80000000 else 0)
        table.append(value & 0xFFFFFFFF)
    return table


_CRC = _crc_table()


def _crc(data: bytes) -> int:
    value = 0
    for byte in data:
        value = (value << 8) & 0xFFFFFFFF ^ _CRC[(value >> 24) ^ byte]
    return value


def opus_head(pre_skip: int) -> bytes:
    """The identification header of RFC 7845 for 24 kHz mono; `pre_skip` at 24 kHz."""
    return struct.pack("<8sBBHIhB", b"OpusHead", 1, 1, pre_skip * _UP, SAMPLE_RATE, 0, 0)


class OggOpusWriter:
    """Ogg Opus with exact pre-skip and end: a decoder gives `samples` samples, no more, no less."""

    format = "opus"

    def __init__(self, file: BinaryIO, pre_skip: int, serial: int = 1) -> None:
        self._file = file
        self._pre_skip = pre_skip
        self._serial = serial
        self._page = 0
        self._held: list[bytes] = []
        self._held_samples = 0
        self._samples = 0
        head = opus_head(pre_skip)
        vendor = b"voxgate"
        tags = b"OpusTags" + struct.pack("<I", len(vendor)) + vendor + struct.pack("<I", 0)
        self._write_page([head], granule=0, flags=_FIRST)
        self._write_page([tags], granule=0)

    def write(self, payload: bytes, samples: int) -> None:
        # The newest packet is held, so that the last page always has one to carry the end.
        if self._held and (
            self._held_samples >= _PAGE_SAMPLES
            or sum(len(packet) // 255 + 1 for packet in (*self._held, payload)) > 255
        ):
            self.flush()
        self._held.append(payload)
        self._held_samples += samples

    def flush(self) -> None:
        """Write out what is held, so that it can be heard. The end needs a packet after it."""
        self._samples += self._held_samples
        self._write_page(self._held, granule=self._samples * _UP)
        self._held, self._held_samples = [], 0
        self._file.flush()

    def close(self, samples: int | None = None) -> None:
        total = self._samples + self._held_samples
        end = total if samples is None else min(total, samples + self._pre_skip)
        self._write_page(self._held, granule=end * _UP, flags=_LAST)
        self._held = []
        self._file.flush()

    def _write_page(self, packets: list[bytes], granule: int, flags: int = 0) -> None:
        lacing = bytes(size for packet in packets for size in _lacing(len(packet)))
        page = struct.pack(
            "<4sBBqIIIB",
            b"OggS",
            0,
            flags,
            granule,
            self._serial,
            self._page,
            0,
            len(lacing),
        )
        page += lacing + b"".join(packets)
        self._file.write(page[:22] + struct.pack("<I", _crc(page)) + page[26:])
        self._page += 1


def _lacing(size: int) -> list[int]:
    return [255] * (size // 255) + [size % 255]


class WavWriter:
    """16-bit mono WAV at 24 kHz."""

    format = "pcm_s16le"

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._bytes = 0
        file.write(wav_header(None))

    def write(self, payload: bytes, samples: int) -> None:
        self._file.write(payload)
        self._bytes += len(payload)

    def close(self, samples: int | None = None) -> None:
        # A pipe cannot seek; players take the unknown size for "until the end".
        with contextlib.suppress(OSError, io.UnsupportedOperation):
            self._file.seek(0)
            self._file.write(wav_header(self._bytes))
        self._file.flush()


def wav_header(size: int | None, rate: int = SAMPLE_RATE) -> bytes:
    """The head of a WAV of so many bytes of 16-bit mono samples; None: until the end."""
    whole = _UNKNOWN_SIZE if size is None else size + 36
    size = _UNKNOWN_SIZE if size is None else size
    return struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        b"RIFF",
        whole,
        b"WAVE",
        b"fmt ",
        16,
        1,
        1,
        rate,
        rate * 2,
        2,
        16,
        b"data",
        size,
    )


class RawOpusWriter:
    """Bare packets, each after its length as u16 little-endian; 24 kHz mono, as on the wire."""

    format = "opus"

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, payload: bytes, samples: int) -> None:
        self._file.write(struct.pack("<H", len(payload)) + payload)

    def close(self, samples: int | None = None) -> None:
        self._file.flush()


def read_raw_opus(file: BinaryIO) -> Iterator[bytes]:
    """Packets of a file of `RawOpusWriter`. Raises `ValueError` when it breaks off."""
    while prefix := file.read(2):
        size = struct.unpack("<H", prefix)[0] if len(prefix) == 2 else -1
        packet = file.read(max(0, size))
        if len(packet) != size:
            raise ValueError("the file ends within a packet")
        yield packet
