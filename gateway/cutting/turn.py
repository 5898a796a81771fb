"""Filter and splitter together: written text in, pieces with their written and spoken text out."""

from __future__ import annotations

from bisect import bisect_right
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
        self._segments: list[Segment] = []
        self._offsets: list[int] = []  # of the segments, in the spoken text
        self._spoken_size = 0

    @property
    def lead(self) -> float | None:
        """Seconds of audio the listener has in hand, if known: later cuts may be longer."""
        return self._splitter.lead

    @lead.setter
    def lead(self, seconds: float | None) -> None:
        self._splitter.lead = seconds

    def feed(self, text: str) -> list[TurnPiece]:
        """Take more text; give the pieces that are decided by now. Raises ValueError at the end."""
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
            self._segments.append(segment)
            self._offsets.append(self._spoken_size)
            self._spoken_size += len(segment.text)
            if segment.text:
                pieces += self._splitter.feed(segment.text)
        return pieces

    def _given(self, pieces: list[Piece]) -> list[TurnPiece]:
        return [self._turn_piece(piece, self._written_end(piece.end)) for piece in pieces]

    def _turn_piece(self, piece: Piece, end: int) -> TurnPiece:
        runs: list[Run] = []
        for segment, offset in zip(self._segments, self._offsets, strict=True):
            if offset >= piece.end:
                break
            run = Run(segment.text, segment.start, segment.end, segment.exact)
            runs.append(run.part(max(0, piece.start - offset), piece.end - offset))
        done = bisect_right(self._segments, end, key=lambda segment: segment.end)
        if done and self._offsets[done - 1] + len(self._segments[done - 1].text) > piece.end:
            done -= 1
        del self._segments[:done], self._offsets[:done]
        start, self._start = self._start, end
        written = "".join(self._written)
        self._written = [written[end - start :]]
        said = rendered(runs, self._settings)
        return TurnPiece(written[: end - start], start, end, piece.pause, said)

    def _written_end(self, spoken_end: int) -> int:
        """Where in the writing a cut at `spoken_end` falls: after the markup that closes there,
        before the markup that opens. A replaced text is not divided: it ends with its first cut."""
        beyond = len(self._segments)
        for index, (segment, offset) in enumerate(zip(self._segments, self._offsets, strict=True)):
            if offset + len(segment.text) > spoken_end:
                beyond = index
                inside = spoken_end - offset
                if inside > 0 and segment.exact:
                    return segment.start + inside
                if inside > 0 and not segment.text[:inside].isspace():
                    return segment.end
                break
        while beyond and _opens(self._segments[beyond - 1]):
            beyond -= 1
        if beyond < len(self._segments):
            return self._segments[beyond].start
        return self._segments[-1].end if self._segments else self._start


def _opens(segment: Segment) -> bool:
    return segment.leading and not segment.text.strip()
