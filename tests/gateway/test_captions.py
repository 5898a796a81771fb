from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.captions import Span, heard_until
from gateway.cutting import TurnText
from gateway.wordtimes import word_times

TEXT = "It is ten o'clock. "
MORE = "现在十点了。"


def laid(text: str, *, ended: bool = True) -> list[Span]:
    """Its pieces, one second each, with half a second between; the last may be still in the
    making."""
    turn = TurnText()
    pieces = [*turn.feed(text), *turn.finish()]
    return [
        Span(
            piece.said,
            piece.start,
            piece.end,
            at * 36_000,
            at * 36_000 + 24_000,
            ended or at < len(pieces) - 1,
        )
        for at, piece in enumerate(pieces)
    ]


@pytest.mark.parametrize(
    ("sample", "heard"),
    [
        (0, ""),
        (1000, ""),
        (6000, "It"),
        (9000, "It is"),
        (15_000, "It is ten"),
        (23_999, "It is ten"),
        (24_000, TEXT),
        (35_000, TEXT),
        (36_001, TEXT),
        (46_000, TEXT + "现在"),
        (59_999, TEXT + "现在十点"),
        (60_000, TEXT + MORE),
        (99_000, TEXT + MORE),
    ],
)
def test_text_is_heard_by_whole_words(sample: int, heard: str) -> None:
    text = TEXT + MORE
    assert text[: heard_until(laid(text), sample)] == heard


def test_a_piece_still_being_made_is_never_heard_to_its_end() -> None:
    spans = laid(TEXT + MORE, ended=False)
    assert heard_until(spans, 10**9) == len(TEXT + "现在十点了")


def test_markup_that_is_said_as_one_is_heard_as_one() -> None:
    text = "So $a^2 + b^2$ it is."
    found = {text[: heard_until(laid(text), sample)] for sample in range(0, 25_000, 100)}
    assert found == {"", "So", "So $a^2 + b^2$", "So $a^2 + b^2$ it", text}


@given(
    st.lists(st.sampled_from(["Hello", " ", "。", "你好", ", ", "x1", ". "]), max_size=12).map(
        "".join
    ),
    st.integers(0, 500_000),
    st.integers(0, 50_000),
)
def test_more_is_heard_later_and_words_stay_whole(text: str, sample: int, later: int) -> None:
    spans = laid(text)
    heard = heard_until(spans, sample)
    assert 0 <= heard <= heard_until(spans, sample + later) <= len(text)
    words = [
        word for span in spans for word in word_times(span.said, span.start_sample, span.end_sample)
    ]
    assert not [word for word in words if word.start < heard < word.end]
