"""FLAC through libFLAC."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from gateway.codecs.base import library

_BLOCK_SAMPLES = 1_152
"""48 ms at 24 kHz: what is waited for before anything is sent."""
_COMPRESSION = 3
_WRITE = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_ubyte),
    ctypes.c_size_t,
    ctypes.c_uint32,
    ctypes.c_uint32,
    ctypes.c_void_p,
)


class FlacEncoder:
    """Raises `CodecMissingError`. The head tells no length: nobody knows it yet."""

    def __init__(self, rate: int) -> None:
        self._state: ctypes.c_void_p | None = None
        self._flac = flac = library("FLAC")
        flac.FLAC__stream_encoder_new.restype = ctypes.c_void_p
        self._state = ctypes.c_void_p(flac.FLAC__stream_encoder_new())
        for setting, value in (
            ("channels", 1),
            ("bits_per_sample", 16),
            ("sample_rate", rate),
            ("compression_level", _COMPRESSION),
            ("blocksize", _BLOCK_SAMPLES),
        ):
            function: Any = getattr(flac, f"FLAC__stream_encoder_set_{setting}")
            function(self._state, ctypes.c_uint32(value))
        self._out = bytearray()
        self._callback = _WRITE(self._write)
        failed = flac.FLAC__stream_encoder_init_stream(
            self._state, self._callback, None, None, None, None
        )
        if failed:
            self.close()
            raise ValueError(f"libFLAC refused to begin ({failed})")

    def _write(
        self, _: int, data: Any, size: int, samples: int, frame: int, client: int | None
    ) -> int:
        self._out += ctypes.string_at(data, size)
        return 0

    def feed(self, samples: bytes) -> bytes:
        wide = np.frombuffer(samples, dtype="<i2").astype(np.int32)
        self._flac.FLAC__stream_encoder_process_interleaved(
            self._state,
            wide.ctypes.data_as(ctypes.POINTER(ctypes.c_int32)),
            ctypes.c_uint32(wide.size),
        )
        return self._taken()

    def finish(self) -> bytes:
        self._flac.FLAC__stream_encoder_finish(self._state)
        self.close()
        return self._taken()

    def _taken(self) -> bytes:
        out = bytes(self._out)
        self._out.clear()
        return out

    def close(self) -> None:
        state, self._state = self._state, None
        if state is not None:
            self._flac.FLAC__stream_encoder_delete(state)

    def __del__(self) -> None:
        self.close()
