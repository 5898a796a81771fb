"""A hung engine process is told from a slow one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.watchdog import BUSY_SECONDS, IDLE_SECONDS, Watchdog, waited_seconds


def given_up_after(
    seconds: int,
    *,
    pending: Callable[[int], bool] = lambda _: True,
    steps: Callable[[int], int] = lambda _: 7,
    cpu_share: float = 0.0,
    clock: Callable[[int], float] = float,
) -> int | None:
    """The second at which the process is given up, looking once a second."""
    watchdog = Watchdog()
    for second in range(1, seconds + 1):
        if watchdog.hangs(
            clock(second),
            pending=pending(second),
            steps=steps(second),
            cpu_seconds=lambda: 100 + cpu_share * second,  # noqa: B023
        ):
            return second
    return None


def test_one_that_does_nothing_is_given_up_soon() -> None:
    after = given_up_after(100)
    assert after is not None
    assert IDLE_SECONDS <= after <= IDLE_SECONDS + 2


@pytest.mark.parametrize("cpu_share", [0.05, 1.0, 16.0])
def test_one_that_works_is_given_longer(cpu_share: float) -> None:
    after = given_up_after(100, cpu_share=cpu_share)
    assert after is not None
    assert BUSY_SECONDS <= after <= BUSY_SECONDS + 2


def test_answering_sockets_is_no_work() -> None:
    after = given_up_after(100, cpu_share=0.005)
    assert after is not None
    assert after <= IDLE_SECONDS + 2


def test_one_that_steps_is_never_given_up_however_slowly() -> None:
    assert given_up_after(1000, steps=lambda second: second // 9) is None
    assert given_up_after(1000, steps=lambda second: second // 59, cpu_share=0.1) is None


def test_one_without_requests_owes_nothing() -> None:
    assert given_up_after(1000, pending=lambda _: False) is None
    assert given_up_after(1000, pending=lambda second: second % 9 > 0) is None


def test_silence_counts_from_the_last_step_and_again_from_the_next() -> None:
    after = given_up_after(1000, steps=lambda second: min(second // 5, 40))
    assert after is not None
    assert 200 + IDLE_SECONDS <= after <= 202 + IDLE_SECONDS


def test_time_in_which_nobody_looked_hardly_counts() -> None:
    # Suspended for an hour together with the engine process, which then steps on.
    assert (
        given_up_after(
            40,
            clock=lambda second: second + 3600.0 * (second > 5),
            steps=lambda second: second // 7,
        )
        is None
    )


def test_who_is_kept_from_running_is_not_idle() -> None:
    """Two processes on one core, one of them at the lowest priority there is."""
    if not Path("/proc/self/schedstat").exists():
        pytest.skip("this kernel tells nothing of who waits")
    core = {max(os.sched_getaffinity(0))}
    spin = "while True: pass"
    busy = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(2)]
    try:
        for process in busy:
            os.sched_setaffinity(process.pid, core)
        os.sched_setscheduler(busy[1].pid, os.SCHED_IDLE, os.sched_param(0))
        before = waited_seconds(busy[1].pid)
        # The wait is counted when it ends, so one that never runs has waited for nothing yet.
        deadline = time.monotonic() + 60
        while waited_seconds(busy[1].pid) - before <= 0.2:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert waited_seconds(busy[1].pid) == 0.0
