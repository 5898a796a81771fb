from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.cutting import TurnPiece, TurnText
from gateway.wordtimes import word_times


def pieces(text: str) -> list[TurnPiece]:
    turn = TurnText()
    return [*turn.feed(text), *turn.finish()]


def words(text: str) -> list[tuple[str, str]]:
    """The written and the spoken form of each word."""
    return [
        (text[word.start : word.end], word.spoken)
        for piece in pieces(text)
        for word in word_times(piece.said, 0, 100_000)
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It is ten o'clock.", ["It", "is", "ten", "o'clock"]),
        ("今天很好，世界。", list("今天很好世界")),
        ("我用 Python 写。", ["我", "用", "Python", "写"]),
        ("今天OK吗？", ["今", "天", "OK", "吗"]),
        ("It costs ¥3.5, or 20%.", ["It", "costs", "¥3.5", "or", "20%"]),
        ("At 13:05 it was -5 degrees", ["At", "13:05", "it", "was", "-5", "degrees"]),
        ('He said: "No!" (twice)', ["He", "said", "No", "twice"]),
        ("A well-known — if odd — C++ trick.", ["A", "well-known", "if", "odd", "C++", "trick"]),
        ("see [the site](http://x.y/z) **now**.", ["see", "the", "site", "now"]),
        ("ひらがなとカタカナ", list("ひらがなとカタカナ")),
        ("안녕 세계", ["안녕", "세계"]),
    ],
)
def test_a_word_is_what_is_said_as_one(text: str, expected: list[str]) -> None:
    assert [written for written, _ in words(text)] == expected


def test_what_says_a_whole_construct_is_one_word() -> None:
    text = "So $a^2 \\le b$ holds."
    found = words(text)
    assert [written for written, _ in found] == ["So", "$a^2 \\le b$", "holds"]
    assert found[1][1] not in text
    assert len(found[1][1].split()) > 2


def test_longer_words_take_longer_and_marks_are_rests() -> None:
    (piece,) = pieces("a considerable thing, here")
    a, considerable, thing, here = word_times(piece.said, 1000, 26_000)
    assert a.start_sample == 1000
    assert here.end_sample == 26_000
    length = [word.end_sample - word.start_sample for word in (a, considerable, thing)]
    assert length[0] < length[2] < length[1]
    assert considerable.start_sample == a.end_sample
    assert here.start_sample > thing.end_sample


def test_digits_and_mandarin_take_longer_than_letters() -> None:
    (piece,) = pieces("ab 42 你好")
    ab, number, ni, hao = word_times(piece.said, 0, 10_000)
    assert number.end_sample - number.start_sample > 2 * ab.end_sample
    assert ni.end_sample - ni.start_sample > ab.end_sample / 2
    assert hao.end_sample - hao.start_sample == pytest.approx(ni.end_sample - ni.start_sample, 1)


TEXT = st.lists(
    st.sampled_from(
        ["a", "word ", "3.5", " ", "，", "你", ". ", "$x^2$", "**b** ", "\n", "`", "😀", "-", "+"]
    ),
    min_size=1,
).map("".join) | st.text(max_size=60)


@given(TEXT, st.integers(0, 1000), st.integers(0, 50_000))
def test_words_are_in_order_and_inside(text: str, start: int, length: int) -> None:
    for piece in pieces(text):
        found = word_times(piece.said, start, start + length)
        for word in found:
            assert word.spoken.strip() == word.spoken != ""
            assert start <= word.start_sample <= word.end_sample <= start + length
            assert 0 <= word.start < word.end <= piece.end
        for left, right in pairwise(found):
            assert left.end <= right.start
            assert left.end_sample <= right.start_sample
        if found:
            assert found[0].start_sample == start
            assert found[-1].end_sample == start + length


@given(st.lists(st.sampled_from(["plain", "words", "你好", "here", "x1"]), min_size=1, max_size=30))
def test_plain_text_maps_to_itself(parts: list[str]) -> None:
    text = " ".join(parts)
    found = words(text)
    assert all(written == spoken for written, spoken in found)
    assert "".join(written for written, _ in found) == text.replace(" ", "")
