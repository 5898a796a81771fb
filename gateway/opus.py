"""Encoders of one turn's audio: libopus through opuslib's ctypes declarations, and plain PCM.

Both take exactly `frame_samples` float32 samples a call and return one packet.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, Protocol

import numpy as np

from engine.api import SAMPLE_RATE, Pcm
from gateway.protocol import AudioKind

_APPLICATION_VOIP = 2048
_MAX_PACKET_BYTES = 1500


class OpusMissingError(RuntimeError):
    """libopus is not installed."""


class Encoder(Protocol):
    """Turns consecutive frames of one turn into packets."""

    kind: AudioKind
    frame_samples: int
    pre_skip: int
    """Samples a decoder gives before the first sample that was encoded."""
    pads: bool
    """Whether every packet has to hold a whole frame."""

    def encode(self, pcm: Pcm) -> bytes:
        """One packet of `pcm`: `frame_samples` of float32, at most that many if not `pads`."""
        ...


class PcmEncoder:
    """Little-endian 16-bit samples."""

    kind = AudioKind.PCM_S16LE
    pre_skip = 0
    pads = False

    def __init__(self, frame_ms: int) -> None:
        self.frame_samples = SAMPLE_RATE * frame_ms // 1000

    def encode(self, pcm: Pcm) -> bytes:
        samples: bytes = np.rint(np.clip(pcm, -1.0, 1.0) * 32767.0).astype("<i2").tobytes()
        return samples


@cache
def _api() -> Any:
    """opuslib's declarations. Raises `OpusMissingError` with what to install."""
    try:
        import opuslib.api.ctl
        import opuslib.api.encoder
    # opuslib raises a bare Exception when the shared library is not found.
    except Exception as missing:
        raise OpusMissingError(
            "libopus is missing. Debian, Ubuntu: apt-get install libopus0; "
            "Fedora: dnf install opus; macOS: brew install opus."
        ) from missing
    return opuslib.api


def require_opus() -> None:
    """Raises `OpusMissingError` when this machine has no libopus."""
    _api()


class OpusEncoder:
    """One continuous Opus stream, 24 kHz mono.

    Application "VoIP": see docs/decisions/opus.md.

    `pre_skip` is the encoder's look-ahead, 156 samples (6.5 ms): the decoder gives that much before
    sample 0, and an end needs that much silence after the last sample. Raises `OpusMissingError`.
    """

    kind = AudioKind.OPUS
    pads = True

    def __init__(self, frame_ms: int, bitrate: int, complexity: int) -> None:
        api = _api()
        self.frame_samples = SAMPLE_RATE * frame_ms // 1000
        self._encode = api.encoder.libopus_encode_float
        self._destroy = api.encoder.destroy
        self._state = api.encoder.create_state(SAMPLE_RATE, 1, _APPLICATION_VOIP)
        self._buffer = ctypes.create_string_buffer(_MAX_PACKET_BYTES)
        self._pointer = api.c_float_pointer
        for setting, value in (
            (api.ctl.set_bitrate, bitrate),
            (api.ctl.set_complexity, complexity),
        ):
            api.encoder.encoder_ctl(self._state, setting, value)
        self.pre_skip = int(api.encoder.encoder_ctl(self._state, api.ctl.get_lookahead))

    def encode(self, pcm: Pcm) -> bytes:
        if pcm.size != self.frame_samples:
            raise ValueError(f"an Opus frame has {self.frame_samples} samples, not {pcm.size}")
        samples = np.ascontiguousarray(pcm, dtype=np.float32)
        written = self._encode(
            self._state,
            samples.ctypes.data_as(self._pointer),
            self.frame_samples,
            self._buffer,
            _MAX_PACKET_BYTES,
        )
        if written < 0:
            raise RuntimeError(f"libopus failed with code {written}")
        return self._buffer.raw[:written]

    def __del__(self) -> None:
        if hasattr(self, "_state"):
            self._destroy(self._state)
