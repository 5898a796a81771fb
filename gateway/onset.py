"""When a listener first gets a packet, and when first one that can be heard."""

from __future__ import annotations

import numpy as np

from engine.api import AUDIBLE, SAMPLE_RATE


class OnsetMeter:
    """Feed a stream's packets in order, from its first one on, until `first_audible` is set.

    `format` is the wire format. Times are on the caller's clock. Opus is decoded only up to the
    onset; without libopus the onset stays unknown.
    """

    def __init__(self, format: str) -> None:
        self.first_packet: float | None = None
        self.first_audible: float | None = None
        self._decoder = None
        self._deaf = False
        if format == "opus":
            try:
                import opuslib

                self._decoder = opuslib.Decoder(SAMPLE_RATE, 1)
            # opuslib raises a bare Exception when the shared library is not found.
            except Exception:
                self._deaf = True

    def hear(self, payload: bytes, samples: int, at: float) -> None:
        """The next packet, of `samples` samples, arrived at `at`."""
        if self.first_packet is None:
            self.first_packet = at
        if self.first_audible is not None or self._deaf:
            return
        pcm = self._decoder.decode(payload, samples) if self._decoder else payload
        if (np.abs(np.frombuffer(pcm, dtype="<i2").astype(np.int32)) > AUDIBLE * 32768).any():
            self.first_audible = at
