from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import DRY, OFFLINE, SAMPLE_RATE, EngineStats
from gateway.pacing import (
    JITTER_SECONDS,
    Playhead,
    admit,
    lead_at_end,
    priority,
)
from gateway.settings import Settings

LEADS = st.floats(-10, 60)
CLOCK = st.floats(0, 1e6)


@given(LEADS, LEADS, CLOCK)
def test_silence_goes_first_then_the_nearest_to_running_dry(a: float, b: float, now: float) -> None:
    ours, theirs = priority(a, now, live=True), priority(b, now, live=True)
    assert DRY <= ours < OFFLINE
    assert (ours == DRY) == (a <= 0)
    if a <= b:
        assert ours <= theirs
    assert priority(a, now, live=False) == OFFLINE


def test_an_older_piece_with_the_same_lead_is_nearer_its_deadline() -> None:
    assert priority(2.0, 100.0, live=True) < priority(2.0, 101.0, live=True)


def test_the_lead_grows_while_a_piece_is_made_faster_than_it_is_heard() -> None:
    assert lead_at_end(1.0, expected=4.0, made=2.0, elapsed=1.0) == 2.0
    assert lead_at_end(1.0, expected=4.0, made=2.0, elapsed=2.0) == 1.0
    assert lead_at_end(1.0, expected=4.0, made=2.0, elapsed=4.0) == -1.0
    assert lead_at_end(1.0, expected=1.0, made=2.0, elapsed=4.0) == 1.0


def stats(state: str = "ready", waiting: int = 0) -> EngineStats:
    return EngineStats(state=state, waiting=waiting)


@pytest.mark.parametrize(
    ("sessions", "now", "code"),
    [
        (0, stats("starting"), "starting"),
        (0, stats("restarting"), "engine_restarting"),
        (0, stats("stopped"), "engine_stopped"),
        (2, stats(), "capacity"),
        (1, stats(waiting=9), "capacity"),
        (1, stats(waiting=8), None),
    ],
)
def test_who_is_let_in(sessions: int, now: EngineStats, code: str | None) -> None:
    settings = Settings(max_sessions=2, max_waiting_pieces=8, retry_after_ms=1234)
    refusal = admit(sessions, settings, now)
    assert (refusal and refusal.code) == code
    assert refusal is None or refusal.retry_after_ms == 1234


class TestPlayhead:
    def test_plays_from_a_jitter_buffer_on(self) -> None:
        player = Playhead()
        assert player.send(SAMPLE_RATE, 10.0) == 0.0
        assert player.played(10.0 + JITTER_SECONDS) == 0
        assert player.lead(10.5 + JITTER_SECONDS) == pytest.approx(0.5)
        assert player.played(10.5 + JITTER_SECONDS) == pytest.approx(SAMPLE_RATE / 2)

    def test_knows_since_when_it_is_dry(self) -> None:
        player = Playhead()
        player.send(SAMPLE_RATE, 0.0)
        assert player.send(SAMPLE_RATE, 0.5) is None
        assert player.lead(9.0) == 0.0
        assert player.send(SAMPLE_RATE, 10.0) == pytest.approx(2.0 + JITTER_SECONDS)

    def test_believes_the_real_player(self) -> None:
        player = Playhead()
        player.send(4 * SAMPLE_RATE, 0.0)
        player.report(SAMPLE_RATE, 3.0, paused=False)
        assert player.lead(4.0) == pytest.approx(2.0)
        player.report(2 * SAMPLE_RATE, 4.0, paused=True)
        assert player.lead(9.0) == pytest.approx(2.0)
        player.report(2 * SAMPLE_RATE, 9.0, paused=False)
        assert player.lead(10.0) == pytest.approx(1.0)

    def test_a_report_from_beyond_the_end_is_the_end(self) -> None:
        player = Playhead()
        player.send(SAMPLE_RATE, 0.0)
        player.report(1e12, 0.5, paused=False)
        assert player.lead(0.5) == 0.0
        assert player.send(1, 1.0) == 0.5

    def test_skips_what_was_thrown_away(self) -> None:
        player = Playhead()
        player.send(SAMPLE_RATE, 0.0)
        player.skip(0.5)
        assert player.lead(0.5) == 0.0
        player.skip(0.7)
        assert player.send(1, 1.0) == 0.5

    @given(
        st.lists(
            st.tuples(st.sampled_from(["send", "wait", "report", "pause", "skip"]), st.floats(0, 5))
        )
    )
    def test_never_runs_ahead_of_what_was_sent(self, steps: list[tuple[str, float]]) -> None:
        player, now = Playhead(), 0.0
        for what, amount in steps:
            if what == "send":
                player.send(int(amount * SAMPLE_RATE), now)
            elif what == "wait":
                now += amount
            elif what == "skip":
                player.skip(now)
            else:
                player.report(amount * SAMPLE_RATE, now, paused=what == "pause")
            before = player.played(now)
            assert 0 <= before <= player.sent
            assert player.played(now) == before
