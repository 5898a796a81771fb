from __future__ import annotations

import math
from dataclasses import dataclass

import pytest

from engine.api import DRY, SAMPLE_RATE, EngineStats, SpeechRequest
from gateway.admission import LOOK_SECONDS, Admission
from gateway.settings import Settings
from gateway.supply import Supply

READY = EngineStats(state="ready")


@dataclass(eq=False)
class Someone:
    speaks: bool | None = True

    def speaking(self, now: float) -> bool | None:
        return self.speaks


def measured(streams: float) -> Supply:
    """An engine that was seen to carry so many streams."""
    supply, now = Supply(), 0.0
    b = 0.5 / streams
    for pieces in (1, 2, 4, 8, int(streams)):
        flights = [supply.begin(SpeechRequest(text="A.", priority=DRY), now) for _ in range(pieces)]
        now += 4.0
        for flight in flights:
            assert flight is not None
            supply.made(flight, round(4.0 / (0.5 + b * pieces) * SAMPLE_RATE), now)
        for flight in flights:
            assert flight is not None
            supply.end(flight, now)
        supply.look(READY, now)
    assert supply.capacity == pytest.approx(streams, rel=0.05)
    return supply


def admission(streams: float = 20.0, **settings: float) -> Admission:
    return Admission(Settings(**settings), measured(streams), 100.0)  # type: ignore[arg-type]


def test_full_is_where_one_more_would_let_others_run_dry() -> None:
    gate = admission(20.0, capacity_share=0.8)
    for count in range(15):
        assert gate.refusal(count, READY, 100.0) is None
    refusal = gate.refusal(16, READY, 100.0)
    assert refusal is not None
    assert refusal.code == "capacity"
    assert "16.0 streams" in refusal.message
    assert gate.pressure(16, 100.0) == pytest.approx(1.0, rel=0.05)
    assert gate.pressure(0, 100.0) == 0.0


def test_who_is_silent_for_long_makes_room() -> None:
    gate, people = admission(20.0), [Someone(index < 4) for index in range(17)]
    now = 100.0
    gate.look(people, READY, now)
    assert gate.refusal(17, READY, now) is not None
    while now < 140.0:
        now += LOOK_SECONDS
        gate.look(people, READY, now)
    assert 4.0 < gate.demand(17) < 9.0
    assert gate.refusal(17, READY, now) is None


def test_what_nobody_listens_to_takes_no_place() -> None:
    gate = admission(20.0)
    gate.look([Someone(None) for _ in range(40)], READY, 100.0)
    assert gate.demand(40) == 0.0
    assert gate.demand(42) == 2.0
    assert gate.refusal(40, READY, 100.0) is None


def test_who_left_makes_room_at_once() -> None:
    gate, people = admission(20.0), [Someone() for _ in range(17)]
    gate.look(people, READY, 100.0)
    assert gate.refusal(17, READY, 100.0) is not None
    assert gate.demand(8) == pytest.approx(8.0)
    assert gate.refusal(8, READY, 100.1) is None


def test_half_of_the_time_is_not_half_a_stream() -> None:
    """Of many who speak now and then, more than the mean may speak at once."""
    gate, people = admission(100.0), [Someone() for _ in range(40)]
    now = 100.0
    for step in range(400):
        now += LOOK_SECONDS
        for index, person in enumerate(people):
            person.speaks = (step // 4 + index) % 2 == 0
        gate.look(people, READY, now)
    assert 30.0 < gate.demand(40) < 40.0


def test_listeners_who_run_dry_close_the_door_for_a_while() -> None:
    gate, people = admission(20.0), [Someone() for _ in range(4)]
    gate.look(people, READY, 100.0)
    assert gate.refusal(4, READY, 100.0) is None
    gate.ran_dry(100.0)
    assert gate.pressure(4, 100.5) == 1.0
    refusal = gate.refusal(4, READY, 100.5)
    assert refusal is not None
    assert refusal.message == "Listeners run dry."
    assert gate.refusal(4, READY, 103.0) is None


def test_where_listeners_ran_dry_less_is_believed_in_for_minutes() -> None:
    gate, people = admission(20.0), [Someone() for _ in range(15)]
    gate.look(people, READY, 100.0)
    assert gate.refusal(15, READY, 100.0) is None
    gate.ran_dry(100.0)
    assert gate.capacity == pytest.approx(13.5)
    people = people[:13]
    gate.look(people, READY, 104.0)
    refusal = gate.refusal(13, READY, 104.0)
    assert refusal is not None
    assert "without a gap" in refusal.message
    gate.look(people, READY, 400.0)
    assert gate.refusal(13, READY, 400.0) is None
    assert gate.capacity == pytest.approx(17.0, rel=0.05)


def test_an_idle_engine_is_open_whatever_was_measured() -> None:
    gate = admission(20.0)
    gate.ran_dry(100.0)
    assert gate.refusal(0, READY, 100.0) is None


def test_the_more_are_refused_the_later_they_come_back() -> None:
    gate = admission(10.0, retry_after_ms=1000, capacity_share=1.0)
    waits = []
    for _ in range(60):
        refusal = gate.refusal(10, READY, 100.0)
        assert refusal is not None
        waits.append(refusal.retry_after_ms)
    assert waits[0] >= 1000
    assert waits == sorted(waits)
    # Six times as many as there is room for: over six times as long.
    assert waits[-1] == pytest.approx(7000, rel=0.1)
    late = gate.refusal(10, READY, 200.0)
    assert late is not None
    assert late.retry_after_ms == waits[0]


def test_a_wait_has_an_end() -> None:
    gate = admission(10.0, retry_after_ms=1000)
    for _ in range(1000):
        refusal = gate.refusal(10, READY, 100.0)
    assert refusal is not None
    assert refusal.retry_after_ms == 15_000


@pytest.mark.parametrize("state", ["starting", "restarting", "stopped"])
def test_an_engine_that_is_away_is_no_question_of_room(state: str) -> None:
    refusal = admission().refusal(0, EngineStats(state=state), 100.0)
    assert refusal is not None
    assert refusal.code == (state if state == "starting" else f"engine_{state}")
    assert refusal.retry_after_ms == Settings().retry_after_ms


def test_before_anything_was_measured_all_are_let_in() -> None:
    gate = Admission(Settings(), Supply(), 0.0)
    assert gate.capacity == math.inf
    assert gate.refusal(200, READY, 0.0) is None
    assert gate.pressure(200, 0.0) == 0.0
