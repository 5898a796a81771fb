"""Files in the formats of the codecs."""

from __future__ import annotations

from typing import BinaryIO

from gateway.codecs.base import Codec


class CodecWriter:
    """A `gateway.containers.Writer` that encodes what it is given."""

    format = "pcm_s16le"

    def __init__(self, file: BinaryIO, codec: Codec) -> None:
        self._file = file
        self._codec = codec

    def write(self, payload: bytes, samples: int) -> None:
        self._file.write(self._codec.feed(payload))

    def close(self, samples: int | None = None) -> None:
        self._file.write(self._codec.finish())
        self._codec.close()
        self._file.flush()
