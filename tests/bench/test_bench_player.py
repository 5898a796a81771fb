from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.player import SAMPLE_RATE, Player

PACKET = SAMPLE_RATE // 50


def test_a_steady_stream_never_runs_dry() -> None:
    player = Player()
    for index in range(200):
        player.push(5.0 + index * 0.02, PACKET)
    player.stop(9.0, complete=True)
    assert player.gapless
    assert player.started == pytest.approx(5.1)


def test_lateness_within_the_jitter_buffer_is_forgiven() -> None:
    player = Player()
    player.push(0.0, PACKET)
    player.push(0.119, PACKET)
    assert player.gapless


def test_lateness_beyond_the_buffer_is_one_gap_of_the_right_length() -> None:
    player = Player()
    player.push(0.0, PACKET)
    player.push(0.200, PACKET)
    assert not player.gapless
    assert player.gaps == pytest.approx([0.080])


def test_after_a_gap_playback_goes_on_without_a_buffer() -> None:
    player = Player()
    player.push(0.0, PACKET)
    player.push(0.200, PACKET)
    player.push(0.221, PACKET)
    assert player.gaps == pytest.approx([0.080, 0.001])


def test_a_stream_cut_off_in_the_middle_ran_dry_but_a_finished_one_did_not() -> None:
    cut, finished = Player(), Player()
    for player in (cut, finished):
        player.push(0.0, PACKET)
    cut.stop(1.0, complete=False)
    finished.stop(1.0, complete=True)
    assert cut.gaps == pytest.approx([0.88])
    assert finished.gapless


def test_a_stream_that_never_spoke_is_not_gapless() -> None:
    player = Player()
    player.stop(60.0, complete=False)
    assert not player.gapless


def test_lead_counts_what_has_not_been_played() -> None:
    player = Player()
    player.push(0.0, SAMPLE_RATE)
    assert player.lead(0.05) == pytest.approx(1.0)
    assert player.lead(0.6) == pytest.approx(0.5)
    assert player.lead(1.3) == pytest.approx(-0.2)


@given(
    st.lists(st.tuples(st.floats(0, 0.5), st.integers(1, 4800)), min_size=1, max_size=60),
    st.floats(0, 0.3),
)
def test_played_audio_plus_gaps_is_the_time_that_passed(
    arrivals: list[tuple[float, int]], jitter: float
) -> None:
    player, now = Player(jitter=jitter), 0.0
    for gap, samples in arrivals:
        now += gap
        player.push(now, samples)
    assert player.started is not None
    played = sum(samples for _, samples in arrivals) / SAMPLE_RATE
    assert player.runs_dry_at - player.started == pytest.approx(played + sum(player.gaps))
