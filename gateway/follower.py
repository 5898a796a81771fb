"""Reading live captions aloud without falling behind: what to say next, how fast, what to skip.

The lag of a sentence is the time from its first word on the screen to its first sound. A listener
who falls behind hears faster speech first, up to 1.4 times; if that is not enough, whole sentences
are left out, oldest first, and told. Pure: times are given.
"""

from __future__ import annotations

import re
from collections import deque
from typing import NamedTuple

from gateway.characters import expected_seconds
from gateway.settling import Settler

FASTEST = 1.4
_SENTENCE_END = re.compile(r"[.!?。！？…]['\"”’)\]」』]*$")
_LONGEST = 40
"""Words after which a sentence without an end is said."""
_QUIET_SECONDS = 1.2
"""A writer silent for this long has ended the sentence."""
_COMFORT_SECONDS = 2.0
"""Lag up to which speech keeps its normal speed."""
_READY_LEAD_SECONDS = 0.6
"""The next sentence is given to the gateway when the listener has this much in hand."""


class Sentence(NamedTuple):
    """`at`: when its first word was seen."""

    text: str
    at: float


class Say(NamedTuple):
    """Speak this now, at this speed."""

    sentence: Sentence
    speed: float


class Skipped(NamedTuple):
    """Left out at `now`, `lag` seconds after it was seen."""

    text: str
    now: float
    lag: float


class Follower:
    """`show` captions, ask `next` what to say. `most_lag`: no sentence starts later than that."""

    def __init__(self, most_lag: float, *, fastest: float = FASTEST, settle: float = 0.7) -> None:
        self._most_lag = most_lag
        self._fastest = min(fastest, FASTEST)
        self._settler = Settler(settle)
        self._words: list[str] = []
        self._first_at = 0.0
        self._last_at = 0.0
        self._queue: deque[Sentence] = deque()
        self.skipped: list[Skipped] = []

    def show(self, text: str, now: float, *, final: bool = False) -> None:
        """The whole text of the captions as they stand now."""
        self._take_in(self._settler.show(text, now, final=final), now)

    def finish(self, now: float) -> None:
        """No more captions."""
        self._take_in(self._settler.finish(), now)
        self._end_sentence()

    @property
    def waiting(self) -> int:
        """Sentences not yet given out."""
        return len(self._queue)

    def deadline(self) -> float | None:
        """When `next` may change its answer without a new caption."""
        due = [self._settler.deadline]
        if self._words:
            due.append(self._last_at + _QUIET_SECONDS)
        return min((at for at in due if at is not None), default=None)

    def next(self, now: float, lead: float) -> Say | None:
        """What to say now, to a listener with `lead` seconds in hand."""
        self._take_in(self._settler.settled(now), now)
        if self._words and now >= self._last_at + _QUIET_SECONDS:
            self._end_sentence()
        if lead > _READY_LEAD_SECONDS:
            return None
        while self._queue:
            sentence = self._queue[0]
            lag = now + lead - sentence.at
            # Only what has somebody after it is stale: the newest is always worth saying.
            if lag <= self._most_lag or len(self._queue) == 1:
                self._queue.popleft()
                return Say(sentence, self._speed(lag))
            self._queue.popleft()
            self.skipped.append(Skipped(sentence.text, now, lag))
        return None

    def _speed(self, lag: float) -> float:
        """Faster the more is waiting, and before it is late."""
        waiting = sum(expected_seconds(sentence.text, 1.0) for sentence in self._queue)
        behind = max(0.0, lag + waiting - _COMFORT_SECONDS)
        room = max(0.1, self._most_lag / 2 - _COMFORT_SECONDS)
        share = min(1.0, behind / room)
        return round(1.0 + (self._fastest - 1.0) * share, 2)

    def _take_in(self, words: list[tuple[str, float]], now: float) -> None:
        for word, seen in words:
            if not self._words:
                self._first_at = seen
            self._words.append(word)
            self._last_at = now
            if _SENTENCE_END.search(word) or len(self._words) >= _LONGEST:
                self._end_sentence()

    def _end_sentence(self) -> None:
        text = "".join(self._words).strip()
        if text:
            self._queue.append(Sentence(text, self._first_at))
        self._words = []
