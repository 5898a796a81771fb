"""One piece of a turn: its text, how it is spoken, what became of it so far."""

from __future__ import annotations

import enum
import re
import weakref
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.api import SAMPLE_RATE, Language, Pcm, SpeechError, WordTime
from gateway.characters import SPEAKABLE
from gateway.cutting import Pause
from gateway.runaway import Guard
from gateway.spoken import Spoken

if TYPE_CHECKING:
    from gateway.turn import Turn


_JOINT = re.compile(r"(?:[\s,;:，、；：。！？…—]|[.!?](?=\s|$))*")
"""What may stand between two words and begins no speech."""
_SOON = SAMPLE_RATE * 3 // 4
"""So little of a piece may be said twice where its words are not known."""
_MOST_BREAKS = 2
"""What goes on breaking off is its text's doing, and stammering is worse than an end."""


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
    """Words whose times the engine told so far, on the clock of the attempt in the engine."""
    passed_on: int = 0
    """How many words the client was told early."""
    origin: int | None = None
    """Where the attempt's first sample lies or, left out as silence, would lie."""
    said_until: int = 0
    """Code points of `spoken` that earlier attempts, which broke off, said."""
    earlier: list[WordTime] = field(default_factory=list)
    """Their words, in `spoken` and on the turn's clock."""
    broke_at: float | None = None
    breaks: int = 0
    broken: bool = False
    """Whether the sound that broke off has yet to be brought to rest."""

    @property
    def turn(self) -> Turn:
        """The turn it is of; there is one as long as anything can happen to the piece."""
        turn = self.of()
        assert turn is not None
        return turn

    @property
    def spoken(self) -> str:
        """The text to say, all of it."""
        return self.said.text.strip()

    @property
    def rest(self) -> str:
        """What of it the attempt in the engine, or the next one, says."""
        return self.spoken[self._rest_from :]

    @property
    def whole(self) -> bool:
        """Whether attempts that broke off have said all of it."""
        return bool(self.earlier) and SPEAKABLE.search(self.rest) is None

    @property
    def _rest_from(self) -> int:
        match = _JOINT.match(self.spoken, self.said_until) if self.said_until else None
        return match.end() if match else self.said_until

    def words(self) -> list[WordTime]:
        """All words told so far, in `spoken` and on the turn's clock."""
        if self.origin is None:
            return self.earlier
        at = self._rest_from
        return [
            *self.earlier,
            *(
                WordTime(
                    word.start + at,
                    word.end + at,
                    word.start_sample + self.origin,
                    word.end_sample + self.origin,
                )
                for word in self.told
            ),
        ]

    def break_off(self, now: float) -> bool:
        """An attempt ended in the middle of what is heard: keep what it said whole, for the next to
        say the rest. False where that is not known, or nothing is left.
        """
        laid = self.made - self.buffered
        self.breaks += self.made > 0
        if self.breaks > _MOST_BREAKS:
            return False
        if self.start_sample is not None:
            if not (self.told or self.earlier) and laid > _SOON:
                return False
            self.told = [word for word in self.told if word.end_sample <= laid]
            self.earlier = self.words()
            self.said_until = self.earlier[-1].end if self.earlier else 0
        self.told, self.origin = [], None
        self.broke_at = now if self.broke_at is None else self.broke_at
        self.broken = not self.whole
        return self.broken
