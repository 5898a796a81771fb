"""One piece of a turn: its text, how it is spoken, what became of it so far."""

from __future__ import annotations

import enum
import weakref
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.api import Language, Pcm, SpeechError, WordTime
from gateway.cutting import Pause
from gateway.runaway import Guard
from gateway.spoken import Spoken

if TYPE_CHECKING:
    from gateway.turn import Turn


@dataclass(frozen=True, slots=True)
class Voicing:
    """How a turn is spoken."""

    voice: str
    language: Language
    speed: float
    seed: int | None
    style: tuple[str, ...] = ()


class State(enum.Enum):
    """Of one piece in the engine."""

    WAITING = enum.auto()
    RUNNING = enum.auto()
    DONE = enum.auto()
    FAILED = enum.auto()


@dataclass(slots=True, eq=False)
class Piece:
    """One piece of text on its way. `key` orders all pieces of a session."""

    key: int
    of: weakref.ref[Turn]
    """Weak: a turn that is over goes at once, not when the collector comes by."""
    index: int
    text: str
    start: int
    end: int
    said: Spoken
    voicing: Voicing
    pause: Pause
    cut_at: float
    state: State = State.WAITING
    attempts: int = 0
    not_before: float = 0.0
    first_audio_at: float | None = None
    made: int = 0
    chunks: deque[Pcm] = field(default_factory=deque)
    buffered: int = 0
    guard: Guard | None = None
    """Of the attempt in the engine."""
    laid: bool = False
    """Whether any of it went onto the timeline."""
    context: object | None = None
    use_context: bool = True
    error: SpeechError | None = None
    start_sample: int | None = None
    end_sample: int | None = None
    told: list[WordTime] = field(default_factory=list)
    """Words whose times the engine told so far, on the piece's own clock."""
    passed_on: int = 0
    """How many of them the client was told early."""
    origin: int = 0
    """Where the piece's first sample lies or, left out as silence, would lie."""

    @property
    def turn(self) -> Turn:
        """The turn it is of; there is one as long as anything can happen to the piece."""
        turn = self.of()
        assert turn is not None
        return turn

    @property
    def spoken(self) -> str:
        """The text for the engine."""
        return self.said.text.strip()
