"""One pass of the decoding networks over a batch, recorded.

A pass is some three hundred small tensor operations. Run from Python they cost a millisecond or two
of interpreter and wait for its lock after each, so that a busy event loop would slow the codec down
many times over. Recorded once (torch.jit.trace) the whole pass is a single call without the lock.
The recording holds no shape: it is made of the very code that runs unrecorded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.codec.blocks import contexts
from engine.codec.model import Codec, Path
from engine.codec.rows import (
    Context,
    EvenNeighbours,
    Layout,
    Neighbours,
    RaggedNeighbours,
    Rows,
    final_of_even,
)

_jit: Any = torch.jit
"""Untyped in torch."""

Pass = Callable[..., tuple[Tensor, Tensor]]


class _Even:
    """Layout of windows that are all alike."""

    def __init__(self, windows: int, ahead: int) -> None:
        self._windows = windows
        self._ahead = ahead

    def neighbours(self, left: int, right: int) -> Neighbours:
        return EvenNeighbours(left, right, self._ahead)

    def final(self, x: Tensor) -> Tensor:
        return final_of_even(x, self._windows, self._ahead)


@dataclass(slots=True)
class _Ragged:
    """Layout of windows of any lengths, from look-ups that are inputs of the recording."""

    near: dict[tuple[int, int], Neighbours]
    final_rows: Tensor | None

    def neighbours(self, left: int, right: int) -> Neighbours:
        return self.near[left, right]

    def final(self, x: Tensor) -> Tensor:
        return x if self.final_rows is None else x.index_select(0, self.final_rows)


class Network:
    """Frames and kept context -> STFT frames and the context to keep, for one path of a codec."""

    def __init__(self, codec: Codec, path: Path, *, recorded: bool) -> None:
        decoder = codec.codes if path == "codes" else codec.hidden
        assert decoder is not None
        self._codec = codec
        self._path: Path = path
        late = decoder.config.double == "output"
        at_mels = [codec.vocoder, *([decoder.smooth] if decoder.smooth else [])]
        at_mels += [] if late else [decoder.stack]
        self._at_frames = sorted(contexts(decoder.stack)) if late else []
        self._at_mels = sorted({pair for module in at_mels for pair in contexts(module)})
        self._recorded: dict[tuple[bool, int], Pass] | None = {} if recorded else None

    def run(self, frames: Tensor, kept: Tensor, rows: Rows, mels: Rows) -> tuple[Tensor, Tensor]:
        """Frames (rows.total, width), kept (windows, width) -> final STFT frames, kept for next.

        The first pass of each kind (even or ragged windows, with or without look-ahead) records.
        """
        kind = (rows.even, rows.ahead)
        if rows.even:
            look_ups: list[Tensor] = []
        else:
            look_ups = [t for pair in self._at_frames for t in rows.look_ups(*pair)]
            look_ups += [t for pair in self._at_mels for t in mels.look_ups(*pair)]
            if rows.any_ahead:
                look_ups.append(mels.final_rows)
            kind = (False, int(rows.any_ahead))
        one_pass = self._pass(kind)
        if self._recorded is None:
            return one_pass(frames, kept, *look_ups)
        recorded = self._recorded.get(kind)
        if recorded is None:
            recorded = _jit.trace(one_pass, (frames, kept, *look_ups), check_trace=False)
            self._recorded[kind] = recorded
        # Plain execution: the optimising one would fuse for the shapes it has seen, which change
        # with every batch here, and stop to do it again.
        with _jit.optimized_execution(False):
            stft, successor = recorded(frames, kept, *look_ups)
        return stft, successor

    def _pass(self, kind: tuple[bool, int]) -> Pass:
        """The pass over one kind of batch as a function of tensors."""
        even, ahead = kind

        def one_pass(x: Tensor, kept: Tensor, *look_ups: Tensor) -> tuple[Tensor, Tensor]:
            rows: Layout
            mels: Layout
            if even:
                rows, mels = _Even(kept.shape[0], ahead), _Even(kept.shape[0], 2 * ahead)
            else:
                split = 3 * len(self._at_frames)
                rows = _Ragged(_paired(self._at_frames, look_ups[:split]), None)
                near = _paired(self._at_mels, look_ups[split:])
                mels = _Ragged(near, look_ups[-1] if ahead else None)
            context = Context(kept)
            mel = self._codec.mel_rows(x, self._path, rows, mels, context)
            return self._codec.vocoder(mel, mels, context), context.successor()

        return one_pass


def _paired(
    pairs: list[tuple[int, int]], look_ups: tuple[Tensor, ...]
) -> dict[tuple[int, int], Neighbours]:
    triples = zip(look_ups[::3], look_ups[1::3], look_ups[2::3], strict=False)
    return {
        (left, right): RaggedNeighbours(right, *triple)
        for (left, right), triple in zip(pairs, triples, strict=False)
    }
