"""Filter and splitter together: written text in, pieces with their written and spoken text out."""

from __future__ import annotations

from typing import NamedTuple

from gateway.cutting.pieces import Pause, Piece
from gateway.cutting.policy import Lengths
from gateway.cutting.resting import WORD_SILENCE_S
from gateway.cutting.splitter import Splitter
from gateway.cutting.units import HalfJoiner
from gateway.spoken import Segment, Span, Spoken, SpokenFilter, SpokenSettings
from gateway.spoken.mapped import Run
from gateway.spoken.render import rendered


class TurnPiece(NamedTuple):
    """A piece of the written text, and what is said for it.

    `start` and `end` count code points of the turn's written text, as the spans of `said` do. The
    written texts of a turn's pieces follow each other without gaps, markup included.
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
        self._written: list[str] = []  # from `_start` on
        self._start = 0
        self._parts: list[_Part] = []
        self._spoken_size = 0
        self._done = False

    @property
    def lead(self) -> float | None:
        """Seconds of audio the listener has in hand, if known: later cuts may be longer."""
        return self._splitter.lead

    @lead.setter
    def lead(self, seconds: float | None) -> None:
        self._splitter.lead = seconds

    def feed(self, text: str) -> list[TurnPiece]:
        """Take more text; give the pieces that are decided by now. Raises ValueError at the end."""
        if self._done:
            raise ValueError("the turn is finished: no more text can be taken")
        if not text.isascii() or self._halves.pending:
            text = self._halves.feed(text)
        self._written.append(text)
        return self._given(self._split(self._filter.feed(text)))

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
        self._written.append(rest)
        pieces = self._split([*self._filter.feed(rest), *self._filter.flush()])
        pieces += self._splitter.finish()
        given = self._given(pieces[:-1])
        if pieces:
            end = self._start + sum(map(len, self._written))
            given.append(self._turn_piece(pieces[-1], end))
        return given

    def _split(self, segments: list[Segment]) -> list[Piece]:
        pieces: list[Piece] = []
        for segment in segments:
            text = segment.text
            last = self._parts[-1] if self._parts else None
            if last and last.exact and segment.exact:
                last.texts.append(text)
                last.spoken_end += len(text)
                last.end = segment.end
            else:
                at = last.spoken_end if last else self._spoken_size
                self._parts.append(_Part(segment, at))
            if text:
                pieces += self._splitter.feed(text)
        return pieces

    def _given(self, pieces: list[Piece]) -> list[TurnPiece]:
        return [self._turn_piece(piece, self._written_end(piece.end)) for piece in pieces]

    def _turn_piece(self, piece: Piece, end: int) -> TurnPiece:
        runs: list[Run] = []
        for part in self._parts:
            if part.spoken_start >= piece.end:
                break
            low = max(0, piece.start - part.spoken_start)
            runs.append(part.run().part(low, piece.end - part.spoken_start))
        done = 0
        for part in self._parts:
            if part.end > end or part.spoken_end > piece.end:
                break
            self._spoken_size = part.spoken_end
            done += 1
        del self._parts[:done]
        start, self._start = self._start, end
        written = "".join(self._written)
        self._written = [written[end - start :]]
        said = rendered(runs, self._settings)
        return TurnPiece(written[: end - start], start, end, piece.pause, said)

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
                if inside > 0 and not part.run().text[:inside].isspace():
                    return part.end
                break
        while beyond and self._parts[beyond - 1].opens:
            beyond -= 1
        if beyond < len(self._parts):
            return self._parts[beyond].start
        return self._parts[-1].end if self._parts else self._start


class _Part:
    """Spoken code points `spoken_start..spoken_end`, which say the written `start..end`.

    Exact parts grow while plain text comes, so their text is kept as it came.
    """

    __slots__ = ("end", "exact", "opens", "spoken_end", "spoken_start", "start", "texts")

    def __init__(self, segment: Segment, spoken_start: int) -> None:
        self.texts = [segment.text]
        self.start, self.end, self.exact = segment.start, segment.end, segment.exact
        self.opens = segment.leading and not segment.text.strip()
        self.spoken_start = spoken_start
        self.spoken_end = spoken_start + len(segment.text)

    def run(self) -> Run:
        """The part as one run."""
        if len(self.texts) > 1:
            self.texts = ["".join(self.texts)]
        return Run(self.texts[0], self.start, self.end, self.exact)
