from __future__ import annotations

import numpy as np
import opuslib
import pytest

from bench.audible import SAMPLE_RATE, OnsetFinder
from bench.turns import Turn

FRAME = SAMPLE_RATE // 50


@pytest.fixture
def packets() -> list[bytes]:
    """Two packets of silence, then speech-like noise."""
    encoder = opuslib.Encoder(SAMPLE_RATE, 1, opuslib.APPLICATION_AUDIO)
    rng = np.random.default_rng(0)
    loud = (rng.standard_normal(FRAME) * 3000).astype(np.int16)
    return [
        encoder.encode(pcm.tobytes(), FRAME)
        for pcm in (np.zeros(FRAME, np.int16),) * 2 + (loud,) * 8
    ]


def test_latency_counts_from_the_text_that_completed_the_first_piece(packets: list[bytes]) -> None:
    turn = Turn(OnsetFinder())
    turn.send(1.00, "Hello there.")
    turn.send(1.03, " And")
    turn.send(1.06, " more.")
    turn.caption(13)
    turn.caption(18)
    turn.audio(1.10, FRAME, packets[0])
    assert turn.first_packet == pytest.approx(0.07)
    assert turn.first_audible is None


def test_audible_is_the_packet_and_sound_is_the_sample(packets: list[bytes]) -> None:
    turn = Turn(OnsetFinder())
    turn.send(1.0, "Hi.")
    turn.caption(3)
    for index, packet in enumerate(packets):
        turn.audio(1.05 + index * 0.001, FRAME, packet)
    assert turn.heard
    assert turn.first_packet == pytest.approx(0.05)
    assert turn.first_audible == pytest.approx(0.052, abs=0.0015)
    # The player hears two packets of silence first, however early the loud one came.
    assert turn.first_sound is not None
    assert 0.05 + 0.040 <= turn.first_sound < 0.05 + 0.060


def test_without_a_caption_the_first_text_starts_the_clock(packets: list[bytes]) -> None:
    turn = Turn(OnsetFinder())
    turn.send(2.0, "One")
    turn.send(3.0, " two.")
    turn.audio(3.5, FRAME, packets[0])
    assert turn.first_packet == pytest.approx(1.5)


def test_nothing_heard_is_no_latency() -> None:
    turn = Turn(OnsetFinder())
    turn.send(0.0, "Hello.")
    turn.close(10.0)
    assert turn.first_packet is None
    assert turn.first_sound is None
    assert not turn.answered


def test_the_window_ends_playback_but_not_the_wait_for_an_answer(packets: list[bytes]) -> None:
    turn = Turn(OnsetFinder())
    turn.send(9.9, "Hello.")
    turn.caption(6)
    turn.close(10.0)
    for index, packet in enumerate(packets):
        turn.audio(11.0 + index, FRAME, packet)
    assert turn.first_packet == pytest.approx(1.1)
    assert turn.player.gaps == []


def test_a_turn_cut_off_by_the_window_while_dry_ran_dry(packets: list[bytes]) -> None:
    turn = Turn(OnsetFinder())
    turn.send(0.0, "Hello.")
    turn.audio(1.0, FRAME, packets[0])
    turn.close(5.0)
    turn.close(9.0)
    assert turn.player.gaps == pytest.approx([5.0 - 1.12])


def test_a_turn_that_is_spoken_over_stops_playing_and_times_the_cancel(
    packets: list[bytes],
) -> None:
    turn = Turn(OnsetFinder())
    turn.send(1.0, "Hi.")
    for index, packet in enumerate(packets):
        turn.audio(1.05 + index * 0.001, FRAME, packet)
    turn.interrupt(1.2)
    turn.audio(9.0, FRAME, packets[-1])
    assert turn.cancel is None
    turn.cancelled(1.23)
    assert turn.cancel == pytest.approx(0.03)
    turn.close(10.0)
    assert turn.done
    assert turn.player.gapless
    assert turn.player.runs_dry_at <= 1.2
