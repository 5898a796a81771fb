"""Word times of one piece, told while its frames are being made."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.align.monotonic import MonotonicPath
from engine.align.network import AlignmentNetwork, Codes, StreamingNetwork
from engine.align.words import SpokenWord
from engine.api import SAMPLES_PER_FRAME, WordTime

SILENCE = 16
"""The space: what is said before the first symbol."""
SETTLED = 16
"""Frames after which the end of a word is no longer revised."""
LOTS = (32, 16)
LARGER_LOT = 64
"""Frames to hear at once: fewer cost as much. The first settle the first word, just before it is
over for one who listens; later ones are larger, for by then the listener has so much in hand that
their words still come in time."""


class PieceAlignment:
    """Frames in, the words they settle out.

    symbols: phoneme ids of the piece. words: what they say. sampled: the codebooks listened to.
    """

    def __init__(
        self,
        network: AlignmentNetwork,
        symbols: Sequence[int],
        words: Sequence[SpokenWord],
        sampled: Sequence[int],
    ) -> None:
        self._network = StreamingNetwork(network)
        self._path = MonotonicPath([SILENCE, *symbols])
        self._words = list(words)
        self._sampled = list(sampled)
        self._waiting: list[Codes] = []
        self._lots = list(LOTS)
        self._told = 0
        self._until = 0

    def push(self, codes: Codes, *, last: bool) -> tuple[WordTime, ...]:
        """The words that the next frames (n, codebooks) settle; all that are left when these are
        the last. Samples count from the first frame."""
        self._waiting.append(codes[:, self._sampled])
        lot = self._lots[0] if self._lots else LARGER_LOT
        if not last and sum(map(len, self._waiting)) < lot:
            return ()
        self._lots = self._lots[1:]
        gathered, self._waiting = np.concatenate(self._waiting), []
        self._path.push(self._network.push(gathered, last=last))
        if not self._path.frames:
            return ()
        edges = self._path.edges(ended=last)
        settled = self._path.frames - (0 if last else SETTLED)
        told = []
        for word in self._words[self._told :]:
            start, end = int(edges[word.first + 1]), int(edges[word.last + 1])
            if end > settled:
                break
            start = max(start, self._until)
            self._until = max(end, start)
            first, beyond = start * SAMPLES_PER_FRAME, self._until * SAMPLES_PER_FRAME
            told.append(WordTime(word.start, word.end, first, beyond))
        self._told += len(told)
        return tuple(told)
