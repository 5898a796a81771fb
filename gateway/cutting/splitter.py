"""The splitter: written text in any fragments in, pieces to speak out."""

from __future__ import annotations

import re
from typing import Final

from gateway import characters as ch
from gateway.cutting import gaps
from gateway.cutting.draft import Draft
from gateway.cutting.gaps import Gap, Level, Role
from gateway.cutting.levels import level_at
from gateway.cutting.pieces import Piece
from gateway.cutting.policy import Lengths
from gateway.cutting.resting import WORD_SILENCE_S, resting_cut
from gateway.cutting.units import HalfJoiner

_NEVER_CUT: Final = frozenset("]>`$")
_BRACKET_HOLD: Final = 150.0
_QUOTE_HOLD: Final = 90.0
_HOLDS: Final = {**dict.fromkeys(ch.BRACKETS, _BRACKET_HOLD), "'": 45.0}
"""Speech units after which an open bracket or quote is taken as never closed."""
_NONE: Final = Level.NONE
_MATTERS: Final = re.compile(f"[{re.escape(ch.TRIGGERS)}\ud800-\udfff]").search
"""What may begin a gap, or is half of a code point."""


class Splitter:
    """Cuts one turn's text into pieces, as it arrives.

    Pieces depend on the text alone (and on `lead`), never on how it was fragmented: a cut is made
    once the text after it has shown that it is one, which takes the next letter or digit. All
    positions count code points of the written text. After `finish` the splitter is done.

    The pieces joined are the text, but for marks and white space after the last word when
    `release` or `flush` has already given that word, and for a turn without any word.
    """

    def __init__(self, lengths: Lengths | None = None) -> None:
        self._draft = Draft(lengths or Lengths())
        self._halves = HalfJoiner()
        self._more: list[str] = []  # text that has come since the last look
        self._size = 0  # of the buffer with that
        self._wake = 1  # size from which a look is due without any mark
        self._scan = 0  # position from which gaps are still to be looked at
        self._done = False

    @property
    def lead(self) -> float | None:
        """Seconds of audio the listener has in hand, if known: later cuts may be longer."""
        return self._draft.lead

    @lead.setter
    def lead(self, seconds: float | None) -> None:
        self._draft.lead = seconds

    def feed(self, text: str) -> list[Piece]:
        """Take more text; give the pieces that are decided by now.

        Raises ValueError after `finish`.
        """
        size = self._size + len(text)
        if size < self._wake and _MATTERS(text) is None:  # the usual case, made short
            self._more.append(text)
            self._size = size
            return []
        if self._done:
            raise ValueError("the turn is finished: no more text can be taken")
        if not text.isascii() or self._halves.pending:
            text = self._halves.feed(text)
        self._more.append(text)
        self._size += len(text)
        if ch.SPEAKABLE.search(text) is None:  # only a word can decide anything
            self._wake = 0
            return []
        if self._size < self._wake:
            gap = gaps.PATTERN.search(text)
            if gap is None or gap.end() == len(text):
                if gap is not None or self._halves.pending:  # it goes on
                    self._wake = 0
                return []
        return self._run(False)

    def finish(self) -> list[Piece]:
        """End the turn: give all that is left, if there is anything to speak in it."""
        self._more.append(self._halves.finish())
        pieces = self._run(True)
        self._done, self._wake = True, 0
        return pieces

    def flush(self) -> list[Piece]:
        """Give everything now and go on; marks with no word yet wait for the next one."""
        return self._run(True)

    def release(self, silence_s: float = WORD_SILENCE_S) -> list[Piece]:
        """Give what may be spoken after `silence_s` without new text, if anything.

        At once: a sentence with its mark and its closing quote. After `CLAUSE_SILENCE_S`: a clause,
        or a sentence whose full stop ends the text. After `WORD_SILENCE_S`: whole words, up to but
        not into a word, number, abbreviation, tag or URL that may still grow.
        """
        pieces = self._run(False)
        draft = self._draft
        text = draft.buffer
        if not ch.speakable(text):
            return pieces
        limit = next((o.at for o in draft.openers if o.closers in _NEVER_CUT), None)
        found = resting_cut(
            text,
            draft.places(),
            openers=[opener.closers for opener in draft.openers],
            limit=len(text) if limit is None else limit - draft.start,
            opens_line=draft.opens_line,
            silence_s=silence_s,
        )
        if found is not None:
            draft.cut_at(*found)
            complete = self._scan <= draft.start == draft.base + len(text)
            self._scan = max(self._scan, draft.start)
            pieces += self._rest(complete)
        return pieces

    def _run(self, final: bool) -> list[Piece]:
        """Look at all that has come."""
        if self._done:
            raise ValueError("the turn is finished: no more text can be taken")
        draft = self._draft
        more = self._more
        draft.buffer += more[0] if len(more) == 1 else "".join(more)
        more.clear()
        complete, known, last = self._scan_gaps(final)
        if draft.near_alarm(known) and not draft.settle(final):
            complete = False
        if final and ch.SPEAKABLE.search(draft.buffer, draft.start - draft.base):
            draft.cut_at(len(draft.buffer), last)
        return self._rest(complete)

    def _rest(self, complete: bool) -> list[Piece]:
        """Wait for more text; unless `complete`, its first word may decide a cut."""
        draft = self._draft
        out = draft.trim() if draft.start > draft.base else []
        self._size = len(draft.buffer)
        self._wake = draft.next_look() if complete and not self._halves.pending else 0
        return out

    def _scan_gaps(self, final: bool) -> tuple[bool, int, Level]:
        """Look at every gap; returns whether the last was complete, the position up to which the
        text is known (not counting a gap that ends it), and that gap's level."""
        draft = self._draft
        buffer, base = draft.buffer, draft.base
        size = len(buffer)
        parse = gaps.parse
        last = _NONE
        known = size
        for match in gaps.PATTERN.finditer(buffer, self._scan - base):
            start, end = match.span()
            if end == size and not final:
                return self._wait(start)
            low = draft.start - base
            gap = parse(match[0], start <= low or buffer[start - 1].isspace())
            if gap is None:
                continue
            draft.measure(start)
            if draft.units >= draft.alarm:
                if not draft.settle(final):
                    return self._wait(start)
                if draft.start - base > low:
                    low = draft.start - base
                    gap = parse(match[0], start <= low or buffer[start - 1].isspace())
                    if gap is None:
                        continue
            level = gap.level
            if not gap.plain:
                found = level_at(
                    buffer, low, start, end, gap, opens_line=draft.opens_line, final=final
                )
                if found is None:
                    return self._wait(start)
                level = found
            if end == size:
                last = level
                level = _NONE
                known = start
            if gap.signs:
                self._take_signs(gap, level, start)
            elif level:
                draft.offer(level, start, start + gap.cut)
        self._scan = base + size
        return True, base + known, last

    def _wait(self, start: int) -> tuple[bool, int, Level]:
        """Stop before the gap at buffer index `start`: more text must come."""
        self._scan = self._draft.base + start
        return False, self._scan, _NONE

    def _take_signs(self, gap: Gap, level: Level, start: int) -> None:
        """Follow the brackets and quotes of a gap, and offer its cut between them."""
        draft = self._draft
        for offset, char, role in gap.signs:
            if level and offset >= gap.cut:
                draft.offer(level, start, start + gap.cut)
                level = _NONE
            if role is not Role.OPEN and draft.close(char):
                continue
            if role is Role.CLOSE:
                continue
            if level and offset > gap.mark:  # it did not close, so it belongs to the right
                draft.offer(level, start, start + offset)
                level = _NONE
            if char != "$" or self._opens_formula(start + offset):
                closers = ch.BRACKETS.get(char) or ch.QUOTES[char]
                draft.open(draft.base + start + offset, closers, _HOLDS.get(char, _QUOTE_HOLD))
        if level:
            draft.offer(level, start, start + gap.cut)

    def _opens_formula(self, index: int) -> bool:
        """Whether the dollar sign at a buffer index stands before a letter and after no letter."""
        buffer = self._draft.buffer
        before, after = buffer[max(0, index - 1) : index], buffer[index + 1 : index + 2]
        return (after.isalpha() or after in ("\\", "(", "{")) and not (
            before.isascii() and before.isalnum()
        )
