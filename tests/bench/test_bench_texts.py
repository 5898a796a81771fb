from __future__ import annotations

import itertools
import random

from hypothesis import given
from hypothesis import strategies as st

from bench.arrivals import poisson_starts, token_times
from bench.texts import ENGLISH, MANDARIN, sentences, tokens


def test_there_are_many_varied_sentences_in_both_languages() -> None:
    assert len(set(ENGLISH)) >= 40
    assert len(set(MANDARIN)) >= 40


def test_a_run_of_two_hundred_sentences_repeats_none() -> None:
    spoken = list(itertools.islice(sentences("en", random.Random(1)), 200))
    assert len(set(spoken)) == 200
    assert not any("{" in text for text in spoken)


def test_a_tongue_is_kept() -> None:
    for text in itertools.islice(sentences("zh", random.Random(2)), 60):
        assert any("\u4e00" <= char <= "\u9fff" for char in text)
    for text in itertools.islice(sentences("en", random.Random(2)), 60):
        assert text.isascii()


@given(st.text(max_size=80))
def test_tokens_join_to_the_text(text: str) -> None:
    assert "".join(tokens(text)) == text


def test_tokens_are_small() -> None:
    for text in itertools.islice(sentences("both", random.Random(3)), 100):
        assert max(len(token) for token in tokens(text)) <= 8


@given(st.integers(0, 200), st.floats(0, 60), st.integers(0, 1000))
def test_starts_are_sorted_and_bounded(count: int, within: float, seed: int) -> None:
    starts = poisson_starts(count, within, random.Random(seed))
    assert len(starts) == count
    assert starts == sorted(starts)
    assert all(0 <= start <= within for start in starts)


def test_tokens_come_at_the_asked_rate() -> None:
    times = token_times(["a"] * 400, 40.0, random.Random(0))
    assert times[0] == 0
    assert 9 < times[-1] < 11
    assert all(later > earlier for earlier, later in itertools.pairwise(times))
