"""WAV as it is streamed, and bytes that stay as they are."""

from __future__ import annotations

from gateway.codecs.base import Codec
from gateway.containers import wav_header


class Passthrough:
    """The wire's payloads are the stream."""

    def feed(self, samples: bytes) -> bytes:
        return samples

    def finish(self) -> bytes:
        return b""

    def close(self) -> None:
        pass


class WavEncoder:
    """The length is not known at the head, so it says "until the end", which players understand.

    `samples`: what the samples go through first.
    """

    def __init__(self, rate: int, samples: Codec | None = None) -> None:
        self._head = wav_header(None, rate)
        self._samples = samples or Passthrough()

    def feed(self, samples: bytes) -> bytes:
        head, self._head = self._head, b""
        return head + self._samples.feed(samples)

    def finish(self) -> bytes:
        return self.feed(b"") + self._samples.finish()

    def close(self) -> None:
        self._samples.close()
