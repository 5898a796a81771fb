from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.client import FLUSH, Flush
from gateway.http.elevenlabs.schedule import Schedule
from gateway.link import GatewayError


def test_text_waits_until_enough_is_there() -> None:
    schedule = Schedule([50, 80])
    assert schedule.feed("a" * 49) == []
    assert schedule.feed("b") == ["a" * 49 + "b"]
    assert schedule.feed("c" * 79) == []
    assert schedule.feed("d") == ["c" * 79 + "d"]
    # The last length stays.
    assert schedule.feed("e" * 79) == []
    assert schedule.feed("", flush=True) == ["e" * 79, FLUSH]
    assert schedule.feed("", flush=True) == [FLUSH]


def test_a_trigger_needs_fifty_characters() -> None:
    schedule = Schedule([200])
    assert schedule.feed("a" * 49, trigger=True) == []
    assert schedule.feed("a", trigger=True) == ["a" * 50]


def test_without_a_schedule_nothing_waits() -> None:
    assert Schedule(None).feed("a") == ["a"]
    assert Schedule(None).feed("A sentence.") == ["A sentence."]


@pytest.mark.parametrize("text", ["A sentence. ", "你好。", "“So?” "])
def test_auto_mode_speaks_whole_sentences_at_once(text: str) -> None:
    schedule = Schedule(None, auto=True)
    assert schedule.feed("and, ") == ["and, "]
    assert schedule.feed(text) == [text, FLUSH]


@pytest.mark.parametrize("lengths", [[49], [501], [120, 10]])
def test_lengths_have_bounds(lengths: list[float]) -> None:
    with pytest.raises(GatewayError, match="50 and 500"):
        Schedule(lengths)


@given(
    st.lists(st.integers(50, 500), max_size=3),
    st.booleans(),
    st.lists(st.tuples(st.text(max_size=90), st.booleans(), st.booleans()), max_size=20),
)
def test_nothing_is_lost_or_doubled(
    lengths: list[float], auto: bool, feeds: list[tuple[str, bool, bool]]
) -> None:
    schedule = Schedule(lengths, auto=auto)
    out: list[str | Flush] = []
    for text, flush, trigger in feeds:
        out += schedule.feed(text, flush=flush, trigger=trigger)
    out += schedule.feed("", flush=True)
    assert "".join(item for item in out if isinstance(item, str)) == "".join(
        text for text, _, _ in feeds
    )
