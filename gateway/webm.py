"""Opus in WebM (Matroska) as it is made: for browsers' media source, and for files.

Elements of unknown size, so nothing is filled in afterwards and any prefix can be played.
"""

from __future__ import annotations

import struct
from typing import BinaryIO

from engine.api import SAMPLE_RATE
from gateway.containers import OPUS_RATE, opus_head
from gateway.pauses import milliseconds

_NANOSECONDS = 1_000_000_000
_SEEK_PRE_ROLL = 80_000_000
"""Nanoseconds a decoder needs before a place it jumps to (RFC 7845, 4.6)."""
_CLUSTER_SAMPLES = SAMPLE_RATE * 5
_UNKNOWN = b"\x01" + b"\xff" * 7
_KEYFRAME = 0x80
# Element ids of RFC 9559.
_EBML, _SEGMENT, _INFO, _TRACKS, _TRACK = 0x1A45DFA3, 0x18538067, 0x1549A966, 0x1654AE6B, 0xAE
_CLUSTER, _TIMESTAMP, _SIMPLE_BLOCK = 0x1F43B675, 0xE7, 0xA3
_BLOCK_GROUP, _BLOCK, _DISCARD_PADDING = 0xA0, 0xA1, 0x75A2


def _id(element: int) -> bytes:
    return element.to_bytes((element.bit_length() + 7) // 8, "big")


def _element(element: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    return _id(element) + struct.pack(">Q", len(content) | 1 << 56) + content


def _unsigned(element: int, value: int) -> bytes:
    return _element(element, value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big"))


def _nanoseconds(samples: int) -> int:
    return samples * _NANOSECONDS // SAMPLE_RATE


class WebmOpusWriter:
    """Opus packets into one WebM stream; the end is exact where its length is known."""

    format = "opus"

    def __init__(self, file: BinaryIO, pre_skip: int) -> None:
        self._file = file
        self._pre_skip = pre_skip
        self._samples = 0
        self._cluster: int | None = None
        self._held: tuple[bytes, int] | None = None
        file.write(_head(pre_skip))

    def write(self, payload: bytes, samples: int) -> None:
        self.flush()
        # Held, because only the last block can say where in it the stream ends.
        self._held = (payload, samples)

    def flush(self) -> None:
        """Write out what is held, so that it can be heard. The end needs a packet after it."""
        if self._held is not None:
            payload, samples = self._held
            self._file.write(_element(_SIMPLE_BLOCK, self._block(_KEYFRAME), payload))
            self._past(samples)

    def close(self, samples: int | None = None) -> None:
        if self._held is not None:
            payload, held = self._held
            total = self._samples + held
            surplus = 0 if samples is None else max(0, total - self._pre_skip - samples)
            group = [_element(_BLOCK, self._block(0), payload)]
            if surplus:
                padding = struct.pack(">q", _nanoseconds(surplus))
                group.append(_element(_DISCARD_PADDING, padding))
            self._file.write(_element(_BLOCK_GROUP, *group))
            self._past(held)
        self._file.flush()

    def _past(self, samples: int) -> None:
        self._samples += samples
        self._held = None
        self._file.flush()

    def _block(self, flags: int) -> bytes:
        """The head of a block at the present time; opens a new cluster when it is time."""
        at = milliseconds(self._samples)
        if self._cluster is None or self._samples - self._cluster >= _CLUSTER_SAMPLES:
            self._cluster = self._samples
            self._file.write(_id(_CLUSTER) + _UNKNOWN + _unsigned(_TIMESTAMP, at))
        since = at - milliseconds(self._cluster)
        return struct.pack(">BhB", 0x81, since, flags)


def _head(pre_skip: int) -> bytes:
    """Everything before the first cluster: one audio track, times in milliseconds."""
    ebml = _element(
        _EBML,
        _unsigned(0x4286, 1),
        _unsigned(0x42F7, 1),
        _unsigned(0x42F2, 4),
        _unsigned(0x42F3, 8),
        _element(0x4282, b"webm"),
        _unsigned(0x4287, 4),
        _unsigned(0x4285, 2),
    )
    info = _element(
        _INFO,
        _unsigned(0x2AD7B1, _NANOSECONDS // 1000),
        _element(0x4D80, b"voxgate"),
        _element(0x5741, b"voxgate"),
    )
    track = _element(
        _TRACK,
        _unsigned(0xD7, 1),
        _unsigned(0x73C5, 1),
        _unsigned(0x83, 2),
        _element(0x86, b"A_OPUS"),
        _unsigned(0x56AA, _nanoseconds(pre_skip)),
        _unsigned(0x56BB, _SEEK_PRE_ROLL),
        _element(0x63A2, opus_head(pre_skip)),
        _element(0xE1, _element(0xB5, struct.pack(">d", OPUS_RATE)), _unsigned(0x9F, 1)),
    )
    return ebml + _id(_SEGMENT) + _UNKNOWN + info + _element(_TRACKS, track)
