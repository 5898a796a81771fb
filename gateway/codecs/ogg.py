"""Ogg Opus at bit rates above those of the wire, which is made for speech on thin lines."""

from __future__ import annotations

import io

import numpy as np

from engine.api import Pcm
from gateway.containers import OggOpusWriter
from gateway.opus import OpusEncoder

_FRAME_MS = 20
_SAMPLE_BYTES = 2


class OggOpusCodec:
    """A `Codec`. `bitrate`: bit/s, of which speech in one channel may need less."""

    def __init__(self, bitrate: int, complexity: int) -> None:
        self._opus = OpusEncoder(_FRAME_MS, bitrate, complexity)
        self._frame_bytes = self._opus.frame_samples * _SAMPLE_BYTES
        self._out = io.BytesIO()
        self._writer = OggOpusWriter(self._out, self._opus.pre_skip)
        self._held = bytearray()
        self._fed = 0

    def feed(self, samples: bytes) -> bytes:
        self._fed += len(samples) // _SAMPLE_BYTES
        self._held += samples
        if len(self._held) >= self._frame_bytes:
            self._encode()
            self._writer.flush()
        return self._taken()

    def finish(self) -> bytes:
        # The encoder looks ahead: so much silence brings out the last samples.
        self._held += bytes(self._opus.pre_skip * _SAMPLE_BYTES)
        self._held += bytes(-len(self._held) % self._frame_bytes)
        self._encode()
        self._writer.close(self._fed)
        return self._taken()

    def _encode(self) -> None:
        """All whole frames of what is held."""
        size = self._frame_bytes
        whole = len(self._held) // size * size
        held = np.frombuffer(bytes(self._held[:whole]), dtype="<i2")
        pcm: Pcm = held.astype(np.float32) / np.float32(32_768)
        del self._held[:whole]
        for frame in pcm.reshape(-1, self._opus.frame_samples):
            self._writer.write(self._opus.encode(frame), frame.size)

    def _taken(self) -> bytes:
        out = self._out.getvalue()
        self._out.seek(0)
        self._out.truncate()
        return out

    def close(self) -> None:
        pass
