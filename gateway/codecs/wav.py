"""WAV as it is streamed, and bytes that stay as they are."""

from __future__ import annotations

from gateway.containers import wav_header


class Passthrough:
    """The wire's payloads are the stream."""

    def feed(self, samples: bytes) -> bytes:
        return samples

    def finish(self) -> bytes:
        return b""

    def close(self) -> None:
        pass


class WavEncoder(Passthrough):
    """The length is not known at the head, so it says "until the end", which players understand."""

    def __init__(self, rate: int) -> None:
        self._head = wav_header(None, rate)

    def feed(self, samples: bytes) -> bytes:
        head, self._head = self._head, b""
        return head + samples

    def finish(self) -> bytes:
        return self.feed(b"")
