from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.http.elevenlabs.alignment import spoken, written
from gateway.protocol import Caption


def caption(text: str, words: list[dict[str, Any]] | None, **values: Any) -> Caption:
    values = {"start": 0, "start_sample": 0, "end_sample": 900, "spoken": text, **values}
    end = values["start"] + len(text)
    return Caption(turn=1, piece=0, text=text, end=end, final=True, words=words, **values)


def word(text: str, start: int, end: int, start_sample: int, end_sample: int) -> dict[str, Any]:
    return {
        "text": text,
        "start": start,
        "end": end,
        "start_sample": start_sample,
        "end_sample": end_sample,
    }


def test_letters_share_their_word_and_marks_the_time_between() -> None:
    words = [word("ab", 10, 12, 100, 300), word("c", 14, 15, 400, 500)]
    got = written(caption("ab, c. ", words, start=10, start_sample=100), 1000)
    assert "".join(got.characters) == "ab, c. "
    assert got.starts == [100, 200, 300, 350, 400, 500, 750]
    assert got.ends == [200, 300, 350, 400, 500, 750, 1000]


def test_what_is_said_has_its_own_characters() -> None:
    words = [{**word("$5", 0, 2, 0, 500), "spoken": "five dollars"}]
    got = spoken(caption("$5.", words), 600)
    assert "".join(got.characters) == "five dollars "
    assert (got.starts[0], got.ends[11], got.ends[-1]) == (0, 500, 600)


def test_without_words_the_piece_is_shared_evenly() -> None:
    assert written(caption("abcd", None), 400).starts == [0, 100, 200, 300]
    assert spoken(caption("ab", []), 400).ends == [200, 400]


@given(st.data())
def test_times_are_without_gaps_and_never_go_back(data: st.DataObject) -> None:
    text = data.draw(st.text(min_size=0, max_size=40))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    times = sorted(data.draw(st.lists(st.integers(0, 900), min_size=len(cuts), max_size=len(cuts))))
    marks = list(zip(cuts, times, strict=True))
    words = [
        word(text[start:end], start, end, first, last)
        for (start, first), (end, last) in zip(marks[::2], marks[1::2], strict=False)
        if end > start
    ]
    for got in (written(caption(text, words), 1000), spoken(caption(text, words), 1000)):
        assert len(got.characters) == len(got.starts) == len(got.ends)
        assert got.starts[1:] == got.ends[:-1]
        assert all(start <= end for start, end in zip(got.starts, got.ends, strict=True))
        if got.characters:
            assert (got.starts[0], got.ends[-1]) == (0, 1000)
    assert "".join(written(caption(text, words), 1000).characters) == text
