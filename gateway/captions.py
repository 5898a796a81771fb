"""Where in the written text the listener is, from the sample clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gateway.spoken import Spoken
from gateway.wordtimes import Word, word_times


class Span(NamedTuple):
    """A piece on both clocks: code points of the written text, samples of the turn.

    `ended` is False while the piece is still being made; `end_sample` is a guess then. `told` are
    the words whose times the engine told so far, if it tells any.
    """

    said: Spoken
    start: int
    end: int
    start_sample: int
    end_sample: int
    ended: bool
    told: Sequence[Word] = ()


def heard_until(spans: Sequence[Span], heard_sample: int) -> int:
    """Code points of the turn's text heard by `heard_sample`, cut at a word's end.

    A word only half heard is not counted, since the speaker will want to say it again. Words have
    the times that captions tell.
    """
    heard = 0
    for span in spans:
        if span.ended and heard_sample >= span.end_sample:
            heard = span.end
        elif heard_sample <= span.start_sample:
            break
        else:
            words = span.told or word_times(span.said, span.start_sample, span.end_sample)
            ends = [word.end for word in words if word.end_sample <= heard_sample]
            return max([heard, *ends])
    return heard
