from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.captions import Span, heard_until

TEXT = "It is ten o'clock. "
MORE = "现在十点了。"
SPANS = [
    Span(TEXT, 0, len(TEXT), 0, 19_000),
    Span(MORE, len(TEXT), len(TEXT) + len(MORE), 24_000, 30_000),
]


@pytest.mark.parametrize(
    ("sample", "heard"),
    [
        (0, ""),
        (1000, ""),
        (2000, "It"),
        (4999, "It "),
        (5000, "It is"),
        (9000, "It is ten"),
        (12_000, "It is ten "),
        (16_999, "It is ten "),
        (17_000, "It is ten o'clock"),
        (19_000, TEXT),
        (23_000, TEXT),
        (26_500, TEXT + "现在"),
        (30_000, TEXT + MORE),
        (99_000, TEXT + MORE),
    ],
)
def test_text_is_heard_by_whole_words(sample: int, heard: str) -> None:
    assert (TEXT + MORE)[: heard_until(SPANS, sample, 0.0)] == heard


def test_a_piece_still_being_made_is_reckoned_by_pace() -> None:
    spans = [Span("one two three", 5, 18, 1000, None)]
    assert heard_until(spans, 1000, 0.01) == 0
    assert heard_until(spans, 1400, 0.01) == 5 + len("one ")
    assert heard_until(spans, 99_000, 0.01) == 18


def test_a_piece_without_sound_is_heard_when_its_time_has_come() -> None:
    spans = [Span("a ", 0, 2, 0, 100), Span("# ", 2, 4, 100, 100), Span("b", 4, 5, 100, 200)]
    assert heard_until(spans, 99, 0.0) == 1
    assert heard_until(spans, 100, 0.0) == 4


@given(
    st.lists(st.tuples(st.text(min_size=1), st.integers(0, 5000), st.integers(0, 500)), max_size=5),
    st.lists(st.integers(0, 30_000)),
)
def test_more_time_is_never_less_text(
    drawn: list[tuple[str, int, int]], samples: list[int]
) -> None:
    spans, character, sample = [], 0, 0
    for text, length, pause in drawn:
        end = character + len(text)
        spans.append(Span(text, character, end, sample, sample + length))
        character, sample = end, sample + length + pause
    heard = [heard_until(spans, at, 0.001) for at in sorted(samples)]
    assert heard == sorted(heard)
    assert all(0 <= count <= character for count in heard)
