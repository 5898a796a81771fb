"""Where a stream starts to be heard, with as little decoding as that takes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

SAMPLE_RATE = 24_000
THRESHOLD_DBFS = -50.0


def first_audible(pcm: npt.NDArray[np.float32], threshold_dbfs: float = THRESHOLD_DBFS) -> int:
    """Index of the first sample louder than the threshold; -1 when there is none.

    `pcm` is float32 in [-1, 1]; 0 dBFS is a sample of 1.0.
    """
    loud = np.abs(pcm) > 10.0 ** (threshold_dbfs / 20.0)
    index = int(loud.argmax()) if loud.size else 0
    return index if loud.size and loud[index] else -1


class OnsetFinder:
    """Decodes a stream's first packets until one can be heard, then decodes no more.

    Opus packets depend on those before them, so a stream's packets must come from its first one on.
    """

    def __init__(self, threshold_dbfs: float = THRESHOLD_DBFS) -> None:
        import opuslib

        self._decoder = opuslib.Decoder(SAMPLE_RATE, 1)
        self._threshold = threshold_dbfs
        self._position = 0
        self.onset: int | None = None
        """Sample position of the first audible sample, once found."""

    def push(self, packet: bytes, samples: int) -> bool:
        """Feed the next packet of `samples` samples; True once something was audible."""
        if self.onset is None:
            pcm = np.frombuffer(self._decoder.decode(packet, samples), dtype=np.int16)
            index = first_audible(pcm.astype(np.float32) / 32768.0, self._threshold)
            if index >= 0:
                self.onset = self._position + index
            self._position += samples
        return self.onset is not None


class PcmOnsetFinder:
    """The same for chunks of 16-bit PCM at any rate; positions count at `SAMPLE_RATE`."""

    def __init__(self, threshold_dbfs: float = THRESHOLD_DBFS) -> None:
        self._threshold = threshold_dbfs
        self._position = 0
        self.onset: int | None = None

    def push(self, chunk: bytes, samples: int) -> bool:
        """See `OnsetFinder.push`; `samples` are those of the chunk at `SAMPLE_RATE`."""
        if self.onset is None:
            pcm = np.frombuffer(chunk, dtype="<i2").astype(np.float32) / 32768.0
            index = first_audible(pcm, self._threshold)
            if index >= 0:
                self.onset = self._position + index * samples // pcm.size
            self._position += samples
        return self.onset is not None
