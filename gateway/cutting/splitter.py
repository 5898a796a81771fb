"""The splitter: written text in any fragments in, pieces to speak out."""

from __future__ import annotations

from typing import NamedTuple

from gateway.cutting import characters as ch
from gateway.cutting import gaps
from gateway.cutting.gaps import Gap, Level, Role
from gateway.cutting.levels import level_at
from gateway.cutting.pieces import Pause, Piece
from gateway.cutting.policy import ORPHAN_UNITS, Lengths
from gateway.cutting.resting import WORD_SILENCE_S, resting_cut
from gateway.cutting.soft import breaks_grapheme, grapheme_cut, word_cut
from gateway.cutting.units import HalfJoiner

_PAUSES: dict[Level, Pause] = {
    Level.NONE: "none",
    Level.ENUMERATION: "clause",
    Level.COMMA: "clause",
    Level.STRONG: "clause",
    Level.SENTENCE: "sentence",
    Level.PARAGRAPH: "paragraph",
}
_REACH = 24
"""Code points beyond the cap that must be known before a cut between words is chosen."""
_NEVER_CUT = frozenset("]>`$")
_QUOTE_HOLD = 90.0
_APOSTROPHE_HOLD = 45.0
_BRACKET_HOLD = 150.0


class _Cut(NamedTuple):
    """A place to cut: `units` up to it and `seen` up to the gap that it stands in."""

    at: int
    units: float
    seen: float
    level: Level


class _Opener(NamedTuple):
    at: int
    units: float
    closers: str
    hold: float


class Splitter:
    """Cuts one turn's text into pieces, as it arrives.

    Pieces depend on the text alone (and on `lead`), never on how it was fragmented: a cut is made
    once the text after it has shown that it is one, which takes the next letter or digit. All
    positions count code points of the written text. After `finish` the splitter is done.
    """

    def __init__(self, lengths: Lengths | None = None) -> None:
        self.lead: float | None = None
        """Seconds of audio the listener has in hand, if known: later cuts may be longer."""
        self._lengths = lengths or Lengths()
        self._halves = HalfJoiner()
        self._buffer = ""
        self._start = 0  # of the piece; the buffer begins there between calls
        self._base = 0  # position of the buffer's first code point
        self._scan = 0  # position from which gaps are still to be looked at
        self._measured = 0
        self._units = 0.0  # speech units of the turn up to `_measured`
        self._start_units = 0.0
        self._first = True
        self._opens_line = True
        self._due = False  # the next code point may decide a cut
        self._wake = 1  # buffer length from which a look is due without any mark
        self._openers: list[_Opener] = []
        self._held: list[_Cut] = []  # inside a bracket or quote that may still close
        self._marks: list[_Cut] = []
        self._clause: _Cut | None = None  # chosen, unless the sentence ends right after it
        self._out: list[Piece] = []
        self._done = False

    def feed(self, text: str) -> list[Piece]:
        """Take more text; give the pieces that are decided by now."""
        if self._done:
            raise ValueError("the turn is finished: no more text can be fed")
        if not text.isascii() or self._halves.pending:
            text = self._halves.feed(text)
        self._buffer += text
        if not self._due and len(self._buffer) < self._wake and gaps.TRIGGER.search(text) is None:
            return []
        return self._run(False)

    def finish(self) -> list[Piece]:
        """End the turn: give all that is left, if there is anything to speak in it."""
        self._buffer += self._halves.finish()
        pieces = self._run(True)
        self._done = True
        return pieces

    def release(self, silence_s: float = WORD_SILENCE_S) -> list[Piece]:
        """Give what may be spoken after `silence_s` without new text, if anything.

        At once: a sentence with its mark and its closing quote. After `CLAUSE_SILENCE_S`: a clause,
        or a sentence whose full stop ends the text. After `WORD_SILENCE_S`: whole words, up to but
        not into a word, number, abbreviation, tag or URL that may still grow.
        """
        text = self._buffer
        if not ch.speakable(text):
            return []
        limit = next((o.at for o in self._openers if o.closers in _NEVER_CUT), None)
        found = resting_cut(
            text,
            [(m.at - self._start, m.level) for m in [*self._marks, *self._held]],
            opened=bool(self._openers),
            limit=len(text) if limit is None else limit - self._start,
            opens_line=self._opens_line,
            silence_s=silence_s,
        )
        if found is None:
            return []
        at, level = found
        self._out = []
        units = self._start_units + ch.units(text[:at])
        self._cut(_Cut(self._start + at, units, units, level))
        return self._trimmed()

    def flush(self) -> list[Piece]:
        """Give everything now and go on; marks with no word yet wait for the next one."""
        return self._run(True)

    def _run(self, final: bool) -> list[Piece]:
        self._out = []
        last = self._scan_gaps(final)
        self._due = self._due or not self._settle(final)
        if final:
            rest = self._buffer[self._start - self._base :]
            if ch.speakable(rest):
                end = self._base + len(self._buffer)
                self._cut(_Cut(end, self._units, self._units, last))
        return self._trimmed()

    def _trimmed(self) -> list[Piece]:
        self._buffer = self._buffer[self._start - self._base :]
        self._base = self._start
        self._set_wake()
        return self._out

    def _scan_gaps(self, final: bool) -> Level:
        """Look at every complete gap; returns the level of a gap that ends the text."""
        buffer, base = self._buffer, self._base
        size = len(buffer)
        self._due = False
        last = Level.NONE
        for match in gaps.PATTERN.finditer(buffer, self._scan - base):
            start, end = match.span()
            if end == size and not final:
                return self._wait(start)
            low = self._start - base
            gap = gaps.parse(match.group(), start <= low or buffer[start - 1].isspace())
            if gap is None:
                continue
            self._measure(start)
            if not self._settle(final):
                return self._wait(start)
            if self._start - base > low:
                low = self._start - base
                gap = gaps.parse(match.group(), start <= low or buffer[start - 1].isspace())
                if gap is None:
                    continue
            level = level_at(buffer, low, start, end, gap, opens_line=self._opens_line, final=final)
            if level is None:
                return self._wait(start)
            if end == size:
                last = level
            self._take(gap, level, start, end == size)
        self._scan = base + size
        self._measure(size)
        return last

    def _wait(self, start: int) -> Level:
        """Stop before the gap at buffer index `start`: more text must come."""
        self._scan = self._base + start
        self._due = True
        self._measure(start)
        return Level.NONE

    def _measure(self, index: int) -> None:
        """Count speech units up to a buffer index."""
        known = self._measured - self._base
        if index > known:
            self._units += ch.units(self._buffer[known:index])
            self._measured = self._base + index

    def _take(self, gap: Gap, level: Level, start: int, last: bool) -> None:
        """Follow the brackets and quotes of a gap and weigh the cut in it."""
        cut = gap.cut
        pending = level is not Level.NONE and not last
        for sign in gap.signs:
            if pending and sign.offset >= cut:
                self._offer(level, start, cut)
                pending = False
            opened = self._follow(sign.char, sign.role, start + sign.offset)
            if opened and pending and sign.offset < cut:
                cut = max(gap.toggle_cut, 0)
                self._openers.pop()
                self._offer(level, start, cut)
                pending = False
                self._follow(sign.char, Role.OPEN, start + sign.offset)
        if pending:
            self._offer(level, start, cut)

    def _follow(self, char: str, role: Role, index: int) -> bool:
        """Open or close `char`; returns whether it opened."""
        if role is not Role.OPEN:
            for depth in range(len(self._openers) - 1, -1, -1):
                if char in self._openers[depth].closers:
                    opener = self._openers[depth]
                    del self._openers[depth:]
                    self._held = [c for c in self._held if c.at <= opener.at]
                    return False
            if role is Role.CLOSE:
                return False
        if char == "$" and not self._math_opens(index):
            return False
        closers = ch.BRACKETS.get(char) or ch.QUOTES[char]
        hold = _BRACKET_HOLD if char in ch.BRACKETS else _QUOTE_HOLD
        if char == "'":
            hold = _APOSTROPHE_HOLD
        self._openers.append(_Opener(self._base + index, self._units, closers, hold))
        return True

    def _math_opens(self, index: int) -> bool:
        before = self._buffer[index - 1 : index] if index else ""
        after = self._buffer[index + 1 : index + 2]
        return (after.isalpha() or after in ("\\", "(", "{")) and not (
            before.isascii() and before.isalnum()
        )

    def _offer(self, level: Level, start: int, offset: int) -> None:
        at = self._base + start + offset
        units = self._units + ch.units(self._buffer[start : start + offset])
        cut = _Cut(at, units, self._units, level)
        if self._openers:
            self._held.append(cut)
        else:
            self._consider(cut)

    def _consider(self, cut: _Cut) -> None:
        """Weigh a place to cut that lies in no bracket or quote."""
        if self._clause and cut.seen - self._clause.units >= ORPHAN_UNITS:
            self._cut(self._clause)
        over = cut.at - self._start - self._lengths.max_chars
        if over > 0:
            cut = cut._replace(at=cut.at - over, units=cut.units - over)
        if breaks_grapheme(self._buffer, cut.at - self._base) or not ch.speakable(
            self._buffer[self._start - self._base : cut.at - self._base]
        ):
            return
        least = self._lengths.least_units(cut.level, self._first, self.lead)
        if cut.units - self._start_units < least:
            self._marks.append(cut)
        elif cut.level >= Level.SENTENCE:
            self._cut(cut)
        else:
            self._marks.append(cut)
            self._clause = self._clause or cut

    def _settle(self, final: bool) -> bool:
        """Cut what is decided at the measured position; False if that takes more text."""
        while self._openers and self._units - self._openers[0].units > self._openers[0].hold:
            del self._openers[0]
            self._release_held()
        while True:
            if self._clause and self._units - self._clause.units >= ORPHAN_UNITS:
                self._cut(self._clause)
            elif self._over(self._units, self._measured):
                cut = self._forced(final)
                if cut is None:
                    return False
                if cut.at >= self._measured:
                    return True
                self._cut(cut)
            else:
                return True

    def _over(self, units: float, at: int) -> bool:
        return (
            units - self._start_units > self._lengths.cap_units(self._first)
            or at - self._start > self._lengths.max_chars
        )

    def _release_held(self) -> None:
        limit = self._openers[0].at if self._openers else None
        freed = [c for c in self._held if limit is None or c.at <= limit]
        self._held = self._held[len(freed) :]
        for cut in freed:
            if cut.at > self._start:
                self._consider(cut)

    def _cut(self, cut: _Cut) -> None:
        """Give the piece that ends at `cut`."""
        text = self._buffer[self._start - self._base : cut.at - self._base]
        self._out.append(Piece(text, self._start, cut.at, _PAUSES[cut.level]))
        self._start, self._start_units, self._first = cut.at, cut.units, False
        self._opens_line = text.rstrip(" \t")[-1:] in ch.NEWLINES
        self._scan = max(self._scan, cut.at)
        self._clause = None
        later, self._marks = [m for m in self._marks if m.at > cut.at], []
        if self._openers and self._openers[0].at < cut.at:
            self._openers = [o for o in self._openers if o.at >= cut.at]
            self._release_held()
        for mark in later:
            if mark.at > self._start:
                self._consider(mark)

    def _forced(self, final: bool) -> _Cut | None:
        """Where to cut a piece that has grown over the cap; None if more text must be seen.

        A cut at or after the measured position means that there is no need yet: what is over the
        cap is marks and white space.
        """
        buffer, start = self._buffer, self._start - self._base
        limit = self._limit(start)
        first = ch.SPEAKABLE.search(buffer, start)
        if first is None or limit - first.start() < (limit - start) // 2:
            limit = self._limit(first.start() if first else len(buffer))
        if limit + _REACH > len(buffer) and not final:
            return None
        text = buffer[start : limit + _REACH]
        high = limit - start
        low = high // 3
        cut, level = self._best(low, high, text)
        if ch.SPEAKABLE.search(buffer, start + cut) is None:
            return _Cut(self._measured, 0, 0, Level.NONE) if final else None
        units = self._start_units + ch.units(text[:cut])
        return _Cut(self._start + cut, units, units, level)

    def _limit(self, origin: int) -> int:
        """Buffer index up to which a piece counted from index `origin` may reach."""
        high = min(len(self._buffer), origin + self._lengths.max_chars)
        cap = self._lengths.cap_units(self._first)
        low = origin
        while low < high:
            middle = (low + high + 1) // 2
            if ch.units(self._buffer[origin:middle]) <= cap:
                low = middle
            else:
                high = middle - 1
        return low

    def _best(self, low: int, high: int, text: str) -> tuple[int, Level]:
        """The best cut in `low..high` of the piece: outside brackets, then inside, then between
        words, then between graphemes."""
        for marks in (self._marks, self._held):
            fitting = [m for m in marks if low <= m.at - self._start <= high]
            if fitting:
                best = max(fitting, key=lambda m: m.at + 0.15 * high * m.level)
                return best.at - self._start, best.level
            for opener in self._openers[:1]:
                at = opener.at - self._start
                if marks is self._marks and low <= at <= high and text[at - 1].isspace():
                    return at, Level.NONE
        found = word_cut(text, low, high)
        return (grapheme_cut(text, high) if found is None else found), Level.NONE

    def _set_wake(self) -> None:
        room = self._lengths.cap_units(self._first) - (self._units - self._start_units)
        room = min(room, 3.0 * (self._lengths.max_chars - (self._measured - self._start)))
        if self._clause:
            room = min(room, ORPHAN_UNITS - (self._units - self._clause.units))
        for opener in self._openers[:1]:
            room = min(room, opener.hold - (self._units - opener.units))
        self._wake = self._measured - self._base + max(1, int(room) // 3)
