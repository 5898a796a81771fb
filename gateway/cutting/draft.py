"""The piece that is being gathered: where it may be cut, and when that is decided."""

from __future__ import annotations

from typing import Final, NamedTuple

from gateway import characters as ch
from gateway.cutting.forced import best_cut, reach_of
from gateway.cutting.gaps import Level
from gateway.cutting.pieces import Pause, Piece
from gateway.cutting.policy import ORPHAN_UNITS, Lengths
from gateway.cutting.soft import breaks_grapheme

Cut = tuple[int, int, int, Level]
"""A place to cut: its position, the units of speech up to it and up to the gap that it stands in,
and its level. A plain tuple: one is made for every comma."""

_PAUSES: Final[tuple[Pause, ...]] = (
    "none",
    "clause",
    "clause",
    "clause",
    "sentence",
    "paragraph",
)
_SENTENCE: Final = Level.SENTENCE
_MOST_UNITS: Final = 3  # in a code point
_LOOK_AHEAD: Final = 24
"""Code points beyond the cap that must be known before a cut between words is chosen."""


class Opener(NamedTuple):
    """An open bracket or quote; past `until` speech units it no longer counts as one."""

    at: int
    until: float
    closers: str


class Draft:
    """The text from the last cut on, with what is known about it.

    Positions count code points of the written text; `buffer[0]` stands at `base`. `units` is the
    speech of the whole turn up to the position `measured`. Nothing is due before it reaches
    `alarm`.
    """

    def __init__(self, lengths: Lengths) -> None:
        self.buffer = ""
        self.base = 0
        self.start = 0
        self.measured = 0
        self.units = 0
        self.alarm = 0.0
        self.opens_line = True
        self.openers: list[Opener] = []
        self._start_units = 0
        self._marks: list[Cut] = []  # places outside brackets and quotes, for a forced cut
        self._held: list[Cut] = []  # places inside one that may still close
        self._clause: Cut | None = None  # chosen, unless the sentence ends right after it
        self._out: list[Piece] = []
        self._lengths = lengths
        self._first = True
        self._lead: float | None = None
        self._set_lengths()

    @property
    def lead(self) -> float | None:
        return self._lead

    @lead.setter
    def lead(self, seconds: float | None) -> None:
        self._lead = seconds
        self._set_lengths()

    def _set_lengths(self) -> None:
        self._cap = self._lengths.cap_units(self._first)
        self._least = self._lengths.least_units(self._first, self._lead)
        # A code point is at least one unit long, so this is never too late for either bound.
        self._bound = min(self._cap, self._lengths.max_chars)
        self._set_alarm()

    def _set_alarm(self) -> None:
        alarm = self._start_units + self._bound
        if self._clause:
            alarm = min(alarm, self._clause[1] + ORPHAN_UNITS)
        if self.openers:
            alarm = min(alarm, self.openers[0].until)
        self.alarm = alarm

    def measure(self, index: int) -> None:
        """Count speech units up to a buffer index."""
        self.units += ch.units(self.buffer[self.measured - self.base : index])
        self.measured = self.base + index

    def near_alarm(self, position: int) -> bool:
        """Whether something may be due at `position`, which is then measured."""
        if self.units + _MOST_UNITS * (position - self.measured) < self.alarm:
            return False
        self.measure(position - self.base)
        return self.units >= self.alarm

    def next_look(self) -> int:
        """Buffer length under which nothing can be due."""
        room = int(self.alarm - self.units) // _MOST_UNITS
        return self.measured - self.base + max(1, room)

    def open(self, at: int, closers: str, hold: float) -> None:
        """A bracket or quote opens at position `at`."""
        until = self.units + hold
        self.openers.append(Opener(at, until, closers))
        self.alarm = min(self.alarm, until)

    def close(self, char: str) -> bool:
        """Whether `char` closes an open bracket or quote; what lies inside is then not cut."""
        openers = self.openers
        for depth in range(len(openers) - 1, -1, -1):
            if char in openers[depth].closers:
                at = openers[depth].at
                del openers[depth:]
                if self._held:
                    self._held = [cut for cut in self._held if cut[0] <= at]
                return True
        return False

    def offer(self, level: Level, start: int, end: int) -> None:
        """A gap that starts at buffer index `start`, the measured one, may be cut at `end`."""
        seen = self.units
        cut = (self.base + end, seen + end - start, seen, level)  # a gap holds no wide characters
        if self.openers:
            self._held.append(cut)
        else:
            self._consider(cut)

    def _consider(self, cut: Cut) -> None:
        """Weigh a place to cut that lies in no bracket or quote."""
        at, units, seen, level = cut
        if self._clause and seen - self._clause[1] >= ORPHAN_UNITS:
            self.cut(self._clause)
        if units - self._start_units < self._least[level]:
            self._marks.append(cut)
            return
        over = at - self.start - self._lengths.max_chars
        if over > 0:
            at -= over
            cut = (at, units - over, seen, level)
        if not self._allows(at):
            return
        if level >= _SENTENCE:
            self.cut(cut)
            return
        self._marks.append(cut)
        if self._clause is None:
            self._clause = cut
            self._set_alarm()

    def _allows(self, at: int) -> bool:
        """Whether the piece would have a word in it if cut at `at`, and no broken grapheme."""
        index = at - self.base
        return ch.SPEAKABLE.search(
            self.buffer, self.start - self.base, index
        ) is not None and not breaks_grapheme(self.buffer, index)

    def settle(self, final: bool) -> bool:
        """Cut what is decided at the measured position; False if that takes more text."""
        while self.openers and self.units > self.openers[0].until:
            del self.openers[0]
            self._free_held()
        while True:
            if self._clause and self.units - self._clause[1] >= ORPHAN_UNITS:
                self.cut(self._clause)
            elif (
                self.units - self._start_units > self._cap
                or self.measured - self.start > self._lengths.max_chars
            ):
                cut = self._forced(final)
                if cut is None:
                    return False
                if cut[0] >= self.measured:
                    break
                self.cut(cut)
            else:
                break
        self._set_alarm()
        return True

    def _free_held(self) -> None:
        limit = self.openers[0].at if self.openers else self.measured
        freed = [cut for cut in self._held if cut[0] <= limit]
        self._held = self._held[len(freed) :]
        for cut in freed:
            if cut[0] > self.start:
                self._consider(cut)

    def cut(self, cut: Cut) -> None:
        """Give the piece that ends at `cut`."""
        at, units, _, level = cut
        text = self.buffer[self.start - self.base : at - self.base]
        self._out.append(Piece(text, self.start, at, _PAUSES[level]))
        self.start, self._start_units = at, units
        if at > self.measured:
            self.measured, self.units = at, units
        self.opens_line = text.rstrip(" \t")[-1:] in ch.NEWLINES
        self._clause = None
        marks, self._marks = self._marks, []
        if self._first:
            self._first = False
            self._set_lengths()
        else:
            self._set_alarm()
        if self.openers and self.openers[0].at < at:
            self.openers = [opener for opener in self.openers if opener.at >= at]
            self._free_held()
        for mark in marks:
            if mark[0] > self.start:
                self._consider(mark)

    def cut_at(self, end: int, level: Level) -> None:
        """Give the piece that ends at buffer index `end`."""
        units = self._start_units + ch.units(self.buffer[self.start - self.base : end])
        self.cut((self.base + end, units, units, level))

    def places(self) -> list[tuple[int, Level]]:
        """Where the piece may be cut, counted from its start: outside brackets and quotes first."""
        return self._fitting(self._marks) + self._fitting(self._held)

    def _fitting(self, cuts: list[Cut]) -> list[tuple[int, Level]]:
        return [(cut[0] - self.start, cut[3]) for cut in cuts if self._allows(cut[0])]

    def _forced(self, final: bool) -> Cut | None:
        """Where to cut a piece that has grown over the cap; None if more text must be seen.

        A cut at or after the measured position means that there is no need yet: what is over the
        cap is marks and white space.
        """
        buffer, start = self.buffer, self.start - self.base
        high = reach_of(buffer, start, self._cap, self._lengths.max_chars)
        word = ch.SPEAKABLE.search(buffer, start)
        first = word.start() if word else len(buffer)
        if high - first < (high - start) // 2:
            high = reach_of(buffer, first, self._cap, self._lengths.max_chars)
        if high + _LOOK_AHEAD > len(buffer) and not final:
            return None
        end, level = best_cut(
            buffer[start : high + _LOOK_AHEAD],
            max((high - start) // 3, first + 1 - start),
            high - start,
            marks=self._fitting(self._marks),
            held=self._fitting(self._held),
            opener=self.openers[0].at - self.start if self.openers else None,
        )
        if ch.SPEAKABLE.search(buffer, start + end) is None:
            return (self.measured, 0, 0, Level.NONE) if final else None
        units = self._start_units + ch.units(buffer[start : start + end])
        return self.start + end, units, units, level

    def trim(self) -> list[Piece]:
        """Forget what has been given; returns it."""
        if self.start > self.base:
            self.buffer = self.buffer[self.start - self.base :]
            self.base = self.start
        out, self._out = self._out, []
        return out
