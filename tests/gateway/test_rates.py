from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.flow import WriterFlow
from gateway.protocol import FlowPause, FlowResume
from gateway.rates import Bucket


def test_a_bucket_fills_and_leaks() -> None:
    bucket = Bucket(10.0)
    bucket.add(30, 100.0)
    assert bucket.level(100.0) == 30
    assert bucket.level(101.0) == 20
    assert bucket.until(5, 101.0) == 1.5
    assert bucket.until(25, 101.0) == 0
    assert bucket.level(200.0) == 0


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 50))), st.integers(10, 100))
def test_in_the_long_run_no_more_than_the_rate_gets_through(
    steps: list[tuple[float, int]], burst: int
) -> None:
    bucket = Bucket(20.0)
    now, let_in = 0.0, 0
    for wait, amount in steps:
        now += wait
        if bucket.until(burst - amount, now) == 0:
            bucket.add(amount, now)
            let_in += amount
        assert let_in <= burst + 20.0 * now + 1e-6


def test_a_writer_is_paused_by_what_waits_and_by_what_came() -> None:
    flow = WriterFlow(100, 10.0)
    assert flow.check(75, 0.0) is None
    assert flow.check(76, 0.0) == FlowPause(backlog=76)
    assert flow.wake(0.0) is None
    assert flow.check(51, 0.0) is None
    assert flow.check(50, 0.0) == FlowResume(backlog=50)
    flow.add(160, 0.0)
    assert flow.check(0, 0.0) == FlowPause(backlog=0)
    assert flow.wake(0.0) == pytest.approx(6.0)
    assert flow.check(0, 5.9) is None
    assert flow.check(0, 6.0) == FlowResume(backlog=0)
    assert flow.wake(6.0) is None
    assert flow.too_fast(100, 6.0) == 0
    assert flow.too_fast(120, 6.0) == pytest.approx(2.0)
