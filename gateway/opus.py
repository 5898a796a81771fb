"""The Opus encoder of one turn: libopus through opuslib's ctypes declarations."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np

from engine.api import SAMPLE_RATE, Pcm
from gateway.protocol import AudioKind
from gateway.resampling import Resampler

_APPLICATION_VOIP = 2048
_MAX_PACKET_BYTES = 1500
_EXPECTED_LOSS_PERCENT = 15
"""What the forward error correction prepares for: a poor mobile network."""


class OpusMissingError(RuntimeError):
    """libopus is not installed."""


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
    """One continuous Opus stream, mono, coded at `rate` samples a second.

    Application "VoIP": see docs/decisions/opus.md. `pre_skip` is the encoder's look-ahead, 156
    samples (6.5 ms) at 24 kHz, and the resampler's delay: the decoder gives that much before sample
    0, and an end needs that much silence after the last sample. `fec`: packets carry a coarse copy
    of the one before, for decoders that lost it. `dtx`: silence is sent as packets of a byte or
    two. Raises `OpusMissingError`.
    """

    kind = AudioKind.OPUS

    def __init__(
        self,
        frame_ms: int,
        bitrate: int,
        complexity: int,
        rate: int = SAMPLE_RATE,
        *,
        fec: bool = False,
        dtx: bool = False,
    ) -> None:
        api = _api()
        self.frame_samples = self.grain = SAMPLE_RATE * frame_ms // 1000
        self._resampler = None if rate == SAMPLE_RATE else Resampler(rate)
        self._coded_samples = rate * frame_ms // 1000
        self._encode = api.encoder.libopus_encode_float
        self._destroy = api.encoder.destroy
        self._state = api.encoder.create_state(rate, 1, _APPLICATION_VOIP)
        self._buffer = ctypes.create_string_buffer(_MAX_PACKET_BYTES)
        self._pointer = api.c_float_pointer
        for setting, value in (
            (api.ctl.set_bitrate, bitrate),
            (api.ctl.set_complexity, complexity),
            (api.ctl.set_inband_fec, int(fec)),
            (api.ctl.set_packet_loss_perc, _EXPECTED_LOSS_PERCENT if fec else 0),
            (api.ctl.set_dtx, int(dtx)),
        ):
            api.encoder.encoder_ctl(self._state, setting, value)
        look_ahead = int(api.encoder.encoder_ctl(self._state, api.ctl.get_lookahead))
        self.pre_skip = look_ahead * SAMPLE_RATE // rate
        if self._resampler is not None:
            self.pre_skip += self._resampler.delay

    def encode(self, pcm: Pcm, end: int | None = None) -> bytes:
        if pcm.size != self.frame_samples:
            raise ValueError(f"an Opus frame has {self.frame_samples} samples, not {pcm.size}")
        if self._resampler is not None:
            pcm = self._resampler.feed(pcm)
        samples = np.ascontiguousarray(pcm, dtype=np.float32)
        written = self._encode(
            self._state,
            samples.ctypes.data_as(self._pointer),
            self._coded_samples,
            self._buffer,
            _MAX_PACKET_BYTES,
        )
        if written < 0:
            raise RuntimeError(f"libopus failed with code {written}")
        return self._buffer.raw[:written]

    def __del__(self) -> None:
        if hasattr(self, "_state"):
            self._destroy(self._state)
