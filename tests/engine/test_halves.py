from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import WordTime
from engine.halves import middle, moved


@pytest.mark.parametrize(
    ("text", "left", "right"),
    [
        ("one two three four", "one two ", "three four"),
        ("$1,234.50 $1,234.50", "$1,234.50 ", "$1,234.50"),
        ("9.99%9.99%9.99%9.99%", "9.99%9.99%", "9.99%9.99%"),
        ("今天，明天，后天。", "今天，", "明天，后天。"),
        ("1234567890", "12345", "67890"),
        ("a verylongwordindeed", "a ", "verylongwordindeed"),
    ],
)
def test_where_a_text_is_parted(text: str, left: str, right: str) -> None:
    at = middle(text)
    assert at is not None
    assert (text[:at], text[at:]) == (left, right)


@given(st.text(max_size=60))
def test_both_parts_are_shorter(text: str) -> None:
    at = middle(text)
    assert (at is None) == (len(text) < 2)
    assert at is None or 0 < at < len(text)


def test_words_of_the_second_part_lie_behind_the_first() -> None:
    assert moved([WordTime(0, 3, 10, 20)], 5, 1000) == (WordTime(5, 8, 1010, 1020),)
