"""The best path says every symbol in order, when its frames sound like it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.align.monotonic import MonotonicPath

CLASSES = 12


def scores_of(said: list[int], certainty: float = 0.9) -> np.ndarray:
    """Log-probabilities of frames that each say one class."""
    scores = np.full((len(said), CLASSES), (1 - certainty) / (CLASSES - 1), np.float32)
    scores[np.arange(len(said)), said] = certainty
    return np.log(scores)


@given(st.lists(st.tuples(st.integers(0, CLASSES - 1), st.integers(1, 6)), min_size=2, max_size=12))
def test_edges_are_where_the_symbols_meet(lengths: list[tuple[int, int]]) -> None:
    lengths = [pair for i, pair in enumerate(lengths) if not i or pair[0] != lengths[i - 1][0]]
    symbols = [symbol for symbol, _ in lengths]
    said = [symbol for symbol, count in lengths for _ in range(count)]
    path = MonotonicPath(symbols)
    path.push(scores_of(said))
    expected = np.cumsum([0, *(count for _, count in lengths)])
    np.testing.assert_array_equal(path.edges(ended=True), expected)


@given(st.integers(1, 7), st.integers(0, 2**32 - 1))
def test_frames_may_come_in_any_lots(lot: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    scores = np.log(draw.dirichlet(np.ones(CLASSES), 40)).astype(np.float32)
    symbols = draw.integers(0, CLASSES, 15).tolist()
    whole, parts = MonotonicPath(symbols), MonotonicPath(symbols)
    whole.push(scores)
    for at in range(0, len(scores), lot):
        parts.push(scores[at : at + lot])
    for ended in (True, False):
        np.testing.assert_array_equal(whole.edges(ended=ended), parts.edges(ended=ended))


def test_a_symbol_that_is_not_said_is_left_out() -> None:
    path = MonotonicPath([1, 2, 3, 4])
    path.push(scores_of([1] * 5 + [2] * 5 + [4] * 5, certainty=0.999))
    assert path.edges(ended=True).tolist() == [0, 5, 10, 10, 15]


def test_what_is_not_said_yet_ends_with_the_frames() -> None:
    path = MonotonicPath([1, 2, 3])
    path.push(scores_of([1, 1, 1, 2, 2]))
    assert path.edges(ended=False).tolist() == [0, 3, 5, 5]


def test_nothing_to_align_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing"):
        MonotonicPath([])
