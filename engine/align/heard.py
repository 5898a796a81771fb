"""Word times of a piece beside its audio."""

from __future__ import annotations

from engine.align.piece import PieceAlignment
from engine.api import SpeechRequest, WordTime
from engine.checkpoints.base import AligningCheckpoint, Checkpoint, Frames, PiecePlan


class HeardWords:
    """Words found in frames whose audio was handed out already: no listener waits for them.

    Tells nothing when the checkpoint cannot align.
    """

    def __init__(self, checkpoint: Checkpoint, request: SpeechRequest, plan: PiecePlan) -> None:
        self._checkpoint, self._request, self._plan = checkpoint, request, plan
        self._alignment: PieceAlignment | None = None
        self._opened = False
        self._found: tuple[WordTime, ...] = ()

    def hear(self, frames: Frames, *, last: bool = False) -> None:
        """The next frames, from those the audio begins with on."""
        if not self._opened:
            self._opened = True
            if isinstance(self._checkpoint, AligningCheckpoint):
                self._alignment = self._checkpoint.alignment(self._request, self._plan)
        if self._alignment is not None:
            self._found += self._alignment.push(frames, last=last)

    def told(self) -> tuple[WordTime, ...]:
        """What was found since the last call."""
        found, self._found = self._found, ()
        return found
