"""Where in the written text the listener is, from the sample clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Span(NamedTuple):
    """A piece on both clocks: code points of the written text, samples of the turn.

    `end_sample` is None while the piece is still being made.
    """

    text: str
    start: int
    end: int
    start_sample: int
    end_sample: int | None


def heard_until(spans: Sequence[Span], heard_sample: int, pace: float) -> int:
    """Code points of the turn's text heard by `heard_sample`, cut at a word's end.

    Inside a piece the position is interpolated; a word only half heard is not counted, since the
    speaker will want to say it again. `pace` (characters a sample) stands in for pieces whose end
    is not known yet.
    """
    heard = 0
    for span in spans:
        if span.end_sample is not None and heard_sample >= span.end_sample:
            heard = span.end
            continue
        if heard_sample <= span.start_sample:
            break
        into = heard_sample - span.start_sample
        if span.end_sample is None:
            characters = int(into * pace)
        else:
            characters = len(span.text) * into // (span.end_sample - span.start_sample)
        return span.start + _whole_words(span.text, min(characters, len(span.text)))
    return heard


def _whole_words(text: str, limit: int) -> int:
    """The longest prefix of at most `limit` characters that ends with a whole word."""
    if limit >= len(text):
        return len(text)
    end = limit
    while end > 0 and _joined(text[end - 1], text[end]):
        end -= 1
    return end


def _joined(left: str, right: str) -> bool:
    """Whether a word goes on between two characters. CJK characters stand alone."""
    return _of_word(left) and _of_word(right)


def _of_word(character: str) -> bool:
    return (character.isalnum() or character in "'’-") and not "\u2e80" <= character <= "\uffef"
