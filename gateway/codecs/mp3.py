"""MP3 through libmp3lame."""

from __future__ import annotations

import ctypes
from typing import Any

from gateway.codecs.base import library

_MONO = 3
_QUALITY = 5
"""0 is best and slow, 9 is worst; see docs/decisions/audio-formats.md for what it costs."""
_SLACK_BYTES = 7_200
"""LAME's own bound: 1.25 times the samples and this."""


class Mp3Encoder:
    """Constant bit rate without a bit reservoir: every frame can be played once it is there.

    `rate`: of the samples; `out_rate`: of the stream; `bitrate`: bit/s.
    LAME takes the nearest that MP3 has. Raises `CodecMissingError`.
    """

    def __init__(self, rate: int, bitrate: int, out_rate: int | None = None) -> None:
        self._state: ctypes.c_void_p | None = None
        self._lame = lame = library("mp3lame")
        lame.lame_init.restype = ctypes.c_void_p
        self._state = ctypes.c_void_p(lame.lame_init())
        for setting, value in (
            ("in_samplerate", rate),
            ("out_samplerate", out_rate or rate),
            ("num_channels", 1),
            ("mode", _MONO),
            ("brate", bitrate // 1000),
            ("quality", _QUALITY),
            ("bWriteVbrTag", 0),
            ("disable_reservoir", 1),
        ):
            self._set(setting, value)
        lame.lame_init_params(self._state)

    def _set(self, setting: str, value: int) -> None:
        function: Any = getattr(self._lame, f"lame_set_{setting}")
        function(self._state, ctypes.c_int(value))

    def feed(self, samples: bytes) -> bytes:
        if not samples:
            return b""
        count = len(samples) // 2
        # The stream may have more samples than were fed.
        size = 5 * count + _SLACK_BYTES
        out = ctypes.create_string_buffer(size)
        written = self._lame.lame_encode_buffer(
            self._state, samples, samples, ctypes.c_int(count), out, ctypes.c_int(size)
        )
        return out.raw[: max(0, written)]

    def finish(self) -> bytes:
        out = ctypes.create_string_buffer(_SLACK_BYTES)
        written = self._lame.lame_encode_flush(self._state, out, ctypes.c_int(_SLACK_BYTES))
        self.close()
        return out.raw[: max(0, written)]

    def close(self) -> None:
        state, self._state = self._state, None
        if state is not None:
            self._lame.lame_close(state)

    def __del__(self) -> None:
        self.close()
