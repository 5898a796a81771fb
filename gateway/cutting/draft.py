"""The piece that is being gathered: where it may be cut, and when that is decided."""

from __future__ import annotations

from typing import Final, NamedTuple

from gateway import characters as ch
from gateway.cutting.forced import best_cut, reach_of
from gateway.cutting.gaps import Level
from gateway.cutting.pieces import Pause, Piece
from gateway.cutting.policy import ORPHAN_UNITS, Lengths
from gateway.cutting.soft import breaks_grapheme

_PAUSES: Final[tuple[Pause, ...]] = (
    "none",
    "clause",
    "clause",
    "clause",
    "sentence",
    "paragraph",
)
_SENTENCE: Final = Level.SENTENCE
_LOOK_AHEAD: Final = 24
"""Code points beyond the cap that must be known before a cut between words is chosen."""


class Cut(NamedTuple):
    """A place to cut: `units` of speech up to it, and `seen` up to the gap that it stands in."""

    at: int
    units: int
    seen: int
    level: Level


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
        self.start_units = 0
        self.measured = 0
        self.units = 0
        self.alarm = 0.0
        self.opens_line = True
        self.openers: list[Opener] = []
        self.held: list[Cut] = []
        """Places inside a bracket or quote that may still close."""
        self.marks: list[Cut] = []
        """Places outside, for when a cut is forced."""
        self.out: list[Piece] = []
        self._clause: Cut | None = None  # chosen, unless the sentence ends right after it
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
        self.set_alarm()

    def set_alarm(self) -> None:
        """Note when something may be due next. A code point is at least one unit long."""
        alarm = self.start_units + min(self._cap, self._lengths.max_chars)
        if self._clause:
            alarm = min(alarm, self._clause.units + ORPHAN_UNITS)
        if self.openers:
            alarm = min(alarm, self.openers[0].until)
        self.alarm = alarm

    def measure(self, index: int) -> None:
        """Count speech units up to a buffer index."""
        self.units += ch.units(self.buffer[self.measured - self.base : index])
        self.measured = self.base + index

    def open(self, at: int, closers: str, hold: float) -> None:
        """A bracket or quote opens at position `at`."""
        self.openers.append(Opener(at, self.units + hold, closers))
        self.set_alarm()

    def close(self, char: str) -> bool:
        """Whether `char` closes an open bracket or quote; what lies inside is then not cut."""
        for depth in range(len(self.openers) - 1, -1, -1):
            opener = self.openers[depth]
            if char in opener.closers:
                del self.openers[depth:]
                self.held = [c for c in self.held if c.at <= opener.at]
                self.set_alarm()
                return True
        return False

    def offer(self, level: Level, start: int, end: int) -> None:
        """A gap that starts at buffer index `start`, the measured one, may be cut at `end`."""
        units = self.units + ch.units(self.buffer[start:end])
        cut = Cut(self.base + end, units, self.units, level)
        if self.openers:
            self.held.append(cut)
        else:
            self._consider(cut)

    def _consider(self, cut: Cut) -> None:
        """Weigh a place to cut that lies in no bracket or quote."""
        if self._clause and cut.seen - self._clause.units >= ORPHAN_UNITS:
            self.cut(self._clause)
        over = cut.at - self.start - self._lengths.max_chars
        if over > 0:
            cut = cut._replace(at=cut.at - over, units=cut.units - over)
        start, end = self.start - self.base, cut.at - self.base
        if not ch.SPEAKABLE.search(self.buffer, start, end) or breaks_grapheme(self.buffer, end):
            return
        if cut.units - self.start_units < self._least[cut.level]:
            self.marks.append(cut)
        elif cut.level >= _SENTENCE:
            self.cut(cut)
        else:
            self.marks.append(cut)
            if self._clause is None:
                self._clause = cut
                self.set_alarm()

    def settle(self, final: bool) -> bool:
        """Cut what is decided at the measured position; False if that takes more text."""
        while self.openers and self.units > self.openers[0].until:
            del self.openers[0]
            self._free_held()
        while True:
            if self._clause and self.units - self._clause.units >= ORPHAN_UNITS:
                self.cut(self._clause)
            elif (
                self.units - self.start_units > self._cap
                or self.measured - self.start > self._lengths.max_chars
            ):
                cut = self._forced(final)
                if cut is None:
                    return False
                if cut.at >= self.measured:
                    break
                self.cut(cut)
            else:
                break
        self.set_alarm()
        return True

    def _free_held(self) -> None:
        limit = self.openers[0].at if self.openers else self.measured
        freed = [c for c in self.held if c.at <= limit]
        self.held = self.held[len(freed) :]
        for cut in freed:
            if cut.at > self.start:
                self._consider(cut)

    def cut(self, cut: Cut) -> None:
        """Give the piece that ends at `cut`."""
        text = self.buffer[self.start - self.base : cut.at - self.base]
        self.out.append(Piece(text, self.start, cut.at, _PAUSES[cut.level]))
        self.start, self.start_units = cut.at, cut.units
        self.opens_line = text.rstrip(" \t")[-1:] in ch.NEWLINES
        self._clause = None
        later = [m for m in self.marks if m.at > cut.at] if self.marks else []
        self.marks = []
        if self._first:
            self._first = False
            self._set_lengths()
        else:
            self.set_alarm()
        if self.openers and self.openers[0].at < cut.at:
            self.openers = [o for o in self.openers if o.at >= cut.at]
            self._free_held()
        for mark in later:
            if mark.at > self.start:
                self._consider(mark)

    def cut_at(self, end: int, level: Level) -> None:
        """Give the piece that ends at buffer index `end`."""
        units = self.start_units + ch.units(self.buffer[self.start - self.base : end])
        self.cut(Cut(self.base + end, units, units, level))

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
            marks=[(c.at - self.start, c.level) for c in self.marks],
            held=[(c.at - self.start, c.level) for c in self.held],
            opener=self.openers[0].at - self.start if self.openers else None,
        )
        if ch.SPEAKABLE.search(buffer, start + end) is None:
            return Cut(self.measured, 0, 0, Level.NONE) if final else None
        units = self.start_units + ch.units(buffer[start : start + end])
        return Cut(self.start + end, units, units, level)

    def trim(self) -> list[Piece]:
        """Forget what has been given; returns it."""
        if self.start > self.base:
            self.buffer = self.buffer[self.start - self.base :]
            self.base = self.start
        out, self.out = self.out, []
        return out
