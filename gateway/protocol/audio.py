"""What the server sends as bytes: a header and one packet."""

from __future__ import annotations

import enum
import struct
from typing import NamedTuple


class AudioKind(enum.IntEnum):
    """What the payload of a binary message is."""

    OPUS = 1
    PCM_S16LE = 2
    MULAW = 3
    ALAW = 4
    OGG_OPUS = 5
    WEBM_OPUS = 6


FORMATS: dict[str, AudioKind] = {kind.name.lower(): kind for kind in AudioKind}


class AudioFlag(enum.IntFlag):
    FIRST = 1
    """The first packet of its turn: reset the decoder."""
    PAUSE = 2
    """Nothing but silence put in by the gateway."""


HEADER = struct.Struct("<BBHIIIQ")
"""version u8, kind u8, flags u16, turn u32, sequence u32, samples u32, position u64: 24 bytes."""
HEADER_VERSION = 1


class AudioHeader(NamedTuple):
    """`samples` decoded samples at `position` of the turn, both before `pre_skip` is taken off.

    `sequence` counts the binary messages of a session from 0.
    """

    kind: int
    flags: int
    turn: int
    sequence: int
    samples: int
    position: int

    def pack(self) -> bytes:
        return HEADER.pack(HEADER_VERSION, *self)


def unpack_audio(message: bytes) -> tuple[AudioHeader, bytes]:
    """Header and payload of a binary message. Raises `ValueError`."""
    if len(message) < HEADER.size:
        raise ValueError(f"an audio message has at least {HEADER.size} bytes, not {len(message)}")
    version, *rest = HEADER.unpack_from(message)
    if version != HEADER_VERSION:
        raise ValueError(f"audio header version {version} is not {HEADER_VERSION}")
    return AudioHeader(*rest), message[HEADER.size :]
