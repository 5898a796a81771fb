"""Filter and splitter together: written text in, pieces with their written and spoken text out."""

from __future__ import annotations

from typing import NamedTuple

from gateway.characters import speakable
from gateway.cutting.pieces import Pause, Piece
from gateway.cutting.policy import Lengths
from gateway.cutting.resting import WORD_SILENCE_S
from gateway.cutting.splitter import Splitter
from gateway.cutting.tape import Tape
from gateway.cutting.units import HalfJoiner
from gateway.spoken import Opening, Segment, Span, Spoken, SpokenFilter, SpokenSettings
from gateway.spoken.mapped import Run
from gateway.spoken.render import rendered


class TurnPiece(NamedTuple):
    """A piece of the written text, and what is said for it.

    `start` and `end` count code points of the turn's written text, as the spans of `said` do. The
    written texts of a turn's pieces follow each other without gaps, markup included; one is empty
    if its piece goes on with what is said for a construct of the piece before.
    """

    text: str
    start: int
    end: int
    pause: Pause
    said: Spoken

    @property
    def spoken(self) -> str:
        """The text for the engine: never without a letter or digit."""
        return self.said.text

    @property
    def spans(self) -> tuple[Span, ...]:
        """Which part of the written text each part of `spoken` says."""
        return self.said.spans


class TurnText:
    """Cuts one turn's text into pieces to speak, as it arrives.

    Markup is taken out before the text is cut, so that no piece ends inside a code block or a link
    and lengths are those of speech. All that holds of `Splitter` holds here.
    """

    def __init__(
        self, settings: SpokenSettings | None = None, lengths: Lengths | None = None
    ) -> None:
        self._settings = settings or SpokenSettings()
        self._filter = SpokenFilter(self._settings)
        self._splitter = Splitter(lengths)
        self._halves = HalfJoiner()
        self._written = Tape()
        self._spoken = Tape()
        self._parts: list[_Part] = []  # from the last cut on
        self._start = 0
        self._done = False

    @property
    def lead(self) -> float | None:
        """Seconds of audio the listener has in hand, if known: later cuts may be longer."""
        return self._splitter.lead

    @lead.setter
    def lead(self, seconds: float | None) -> None:
        self._splitter.lead = seconds

    @property
    def unclosed(self) -> Opening | None:
        """What opened the element that the text is in, of which nothing is spoken."""
        return self._filter.unclosed

    def feed(self, text: str) -> list[TurnPiece]:
        """Take more text; give the pieces that are decided by now. Raises ValueError at the end."""
        if self._done:
            raise ValueError("the turn is finished: no more text can be taken")
        if not text.isascii() or self._halves.pending:
            text = self._halves.feed(text)
        self._written.add(text)
        last = self._parts[-1] if self._parts else None
        if last and last.exact and self._filter.passes(text):  # the usual case, made short
            last.grow(len(text))
            self._spoken.add(text)
            pieces = self._splitter.feed(text)
        else:
            pieces = self._split(self._filter.feed(text))
        return self._given(pieces) if pieces else []

    def release(self, silence_s: float = WORD_SILENCE_S) -> list[TurnPiece]:
        """Give what may be spoken after `silence_s` without new text; see `Splitter.release`."""
        pieces = self._split(self._filter.settle())
        return self._given([*pieces, *self._splitter.release(silence_s)])

    def flush(self) -> list[TurnPiece]:
        """Give everything now and go on; what markup is open counts as plain text."""
        pieces = self._split(self._filter.flush())
        return self._given([*pieces, *self._splitter.flush()])

    def finish(self) -> list[TurnPiece]:
        """End the turn: give all that is left, if there is anything to speak in it."""
        self._done = True
        rest = self._halves.finish()
        self._written.add(rest)
        pieces = self._split([*self._filter.feed(rest), *self._filter.flush()])
        pieces += self._splitter.finish()
        given = self._given(pieces[:-1])
        last = self._turn_piece(pieces[-1], self._written.end) if pieces else None
        return given if last is None else [*given, last]

    def _split(self, segments: list[Segment]) -> list[Piece]:
        pieces: list[Piece] = []
        for segment in segments:
            last = self._parts[-1] if self._parts else None
            if last and last.exact and segment.exact:
                last.grow(len(segment.text))
            else:
                self._parts.append(_Part(segment, self._spoken.end))
            if segment.text:
                self._spoken.add(segment.text)
                pieces += self._splitter.feed(segment.text)
        return pieces

    def _given(self, pieces: list[Piece]) -> list[TurnPiece]:
        given = [self._turn_piece(piece, self._written_end(piece.end)) for piece in pieces]
        return [piece for piece in given if piece is not None]

    def _turn_piece(self, piece: Piece, end: int) -> TurnPiece | None:
        """None when nothing is left to say, as of a control tag that markup hid until now: its
        writing becomes that of the piece after it."""
        said = rendered(self._runs(piece), self._settings)
        if not speakable(said.text):
            self._forget(piece.end, end)
            return None
        start, self._start = self._start, end
        text = self._written.part(start, end)
        self._forget(piece.end, end)
        return TurnPiece(text, start, end, piece.pause, said)

    def _runs(self, piece: Piece) -> list[Run]:
        runs: list[Run] = []
        for part in self._parts:
            if part.spoken_start >= piece.end:
                break
            low, high = max(piece.start, part.spoken_start), min(piece.end, part.spoken_end)
            text = self._spoken.part(low, high)
            if part.exact:
                start = part.start + low - part.spoken_start
                runs.append(Run(text, start, start + len(text), True))
            elif text:
                runs.append(Run(text, part.start, part.end, False))
        return runs

    def _forget(self, spoken_end: int, end: int) -> None:
        done = 0
        for part in self._parts:
            if part.end > end or part.spoken_end > spoken_end:
                if part.exact:
                    part.shrink(spoken_end - part.spoken_start)
                break
            done += 1
        del self._parts[:done]
        self._written.forget(self._start)
        self._spoken.forget(spoken_end)

    def _written_end(self, spoken_end: int) -> int:
        """Where in the writing a cut at `spoken_end` falls: after the markup that closes there,
        before the markup that opens. A replaced text is not divided: it ends with its first cut."""
        beyond = len(self._parts)
        for index, part in enumerate(self._parts):
            if part.spoken_end > spoken_end:
                beyond = index
                inside = spoken_end - part.spoken_start
                if inside > 0 and part.exact:
                    return part.start + inside
                if inside > 0 and not self._spoken.part(part.spoken_start, spoken_end).isspace():
                    return part.end
                break
        while beyond and self._parts[beyond - 1].opens:
            beyond -= 1
        if beyond < len(self._parts):
            return self._parts[beyond].start
        return self._parts[-1].end if self._parts else self._start


class _Part:
    """Spoken code points `spoken_start..spoken_end`, which say the written `start..end`.

    `exact` and `opens` as in `Segment`; an exact part grows while plain text comes.
    """

    __slots__ = ("end", "exact", "opens", "spoken_end", "spoken_start", "start")

    def __init__(self, segment: Segment, spoken_start: int) -> None:
        self.start, self.end, self.exact = segment.start, segment.end, segment.exact
        self.opens = segment.leading and not segment.text.strip()
        self.spoken_start = spoken_start
        self.spoken_end = spoken_start + len(segment.text)

    def grow(self, size: int) -> None:
        """More plain text follows that of an exact part."""
        self.spoken_end += size
        self.end += size

    def shrink(self, size: int) -> None:
        """The first code points of an exact part have been given."""
        if size > 0:
            self.spoken_start += size
            self.start += size
