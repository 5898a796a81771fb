from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import DRY, OFFLINE, SAMPLE_RATE, EngineStats, SpeechRequest
from gateway.supply import MeteredSynthesizer, Supply

from fake_engine import FakeSynthesizer, Script  # isort: skip

READY = EngineStats(state="ready")
LIVE, IDLE = SpeechRequest(text="Live.", priority=DRY), SpeechRequest(text="X.", priority=OFFLINE)


def work(supply: Supply, now: float, pieces: int, cost: tuple[float, float], span: float) -> float:
    """`pieces` at once on an engine of cost `a + b n`, from `now` on; returns when that ends."""
    a, b = cost
    flights = [supply.begin(LIVE, now) for _ in range(pieces)]
    pace = 1.0 / (a + b * pieces)
    for _ in range(round(span * 10)):
        now += 0.1
        for flight in flights:
            assert flight is not None
            supply.made(flight, round(0.1 * pace * SAMPLE_RATE), now)
        supply.look(READY, now)
    for flight in flights:
        assert flight is not None
        supply.end(flight, now)
    supply.look(READY, now)
    return now + 1.0


def test_nothing_is_known_before_anything_was_made() -> None:
    supply = Supply()
    supply.look(READY, 5.0)
    assert supply.seconds == 0.0
    assert supply.capacity == math.inf


@given(a=st.floats(0.05, 0.8), b=st.floats(0.002, 0.1), seed=st.integers(0, 99))
def test_finds_the_limit_below_it(a: float, b: float, seed: int) -> None:
    supply, now, rng = Supply(), 0.0, random.Random(seed)
    limit = (1.0 - a) / b
    for pieces in rng.sample(range(1, 9), 6):
        now = work(supply, now, pieces, (a, b), 2.0)
    # Rather too few than too many.
    seen = min(limit, 2 * supply._peak + 2)
    assert 0.6 * seen <= supply.capacity <= 1.1 * seen + 1.0


def test_one_piece_is_believed_in_with_caution() -> None:
    supply = Supply()
    work(supply, 0.0, 1, (0.3, 0.05), 2.0)
    # It could carry 14; at one piece nobody knows.
    assert 3.0 < supply.capacity < 14.0


def test_follows_a_machine_that_slows_down() -> None:
    supply, now = Supply(), 0.0
    for pieces in (1, 3, 5, 7):
        now = work(supply, now, pieces, (0.3, 0.05), 5.0)
    before = supply.capacity
    for pieces in (1, 3, 5, 7) * 4:
        now = work(supply, now, pieces, (0.6, 0.1), 5.0)
    assert before == pytest.approx(14.0, rel=0.05)
    assert supply.capacity == pytest.approx(4.0, rel=0.2)


def test_pieces_far_ahead_that_rest_cost_nothing() -> None:
    supply, now = Supply(), 0.0
    resting = supply.begin(LIVE, now)
    assert resting is not None
    supply.made(resting, 40 * SAMPLE_RATE, 14.0)
    supply.look(READY, 14.0)
    now = 14.0
    for pieces in (1, 3, 5, 7):
        now = work(supply, now + 0.2, pieces, (0.3, 0.05), 2.0)
    assert supply.capacity == pytest.approx(14.0, rel=0.1)


def test_the_engines_own_count_is_believed() -> None:
    supply, now = Supply(), 0.0
    for count, pieces in enumerate((2, 4, 6, 8), 1):
        flights = [supply.begin(LIVE, now) for _ in range(12)]
        pace = 1.0 / (0.3 + 0.05 * pieces)
        now += 1.0
        for flight in flights:
            assert flight is not None
            supply.made(flight, round(pace * pieces * SAMPLE_RATE / 12), now)
            supply.end(flight, now)
        steps = 100 * count
        frames = 100 * sum((2, 4, 6, 8)[:count])
        supply.look(EngineStats(state="ready", steps=steps, frames=frames), now)
    assert supply.capacity == pytest.approx(14.0, rel=0.1)


def test_what_nobody_listens_to_is_not_counted() -> None:
    assert Supply().begin(IDLE, 0.0) is None


async def test_every_piece_of_an_engine_is_counted() -> None:
    now = 0.0
    engine, supply = FakeSynthesizer(lambda _r, _n: Script(samples=48_000, chunk=12_000)), Supply()
    await engine.start()
    metered = MeteredSynthesizer(engine, supply, lambda: now)
    async for _ in metered.speak(LIVE):
        now += 0.25
    supply.look(READY, now)
    assert supply.seconds == pytest.approx(1.0)
    a, b = supply.cost()
    # 2 s of audio in a second; the last step belongs to its reader.
    assert a + b == pytest.approx(0.5)
    stream = metered.speak(LIVE)
    await anext(stream)
    await stream.aclose()
    assert engine.closed == [1]
    assert not supply._flights
