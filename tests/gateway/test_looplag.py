from __future__ import annotations

import asyncio

import pytest
from simulated import Loop

from gateway.looplag import PERIOD_SECONDS, LoopLag


class Blocked(Loop):
    """A loop whose clock is moved on by hand while something runs."""

    def block(self, seconds: float) -> None:
        self._now += seconds


def test_a_block_is_seen_for_a_minute() -> None:
    lags: list[float] = []
    works: list[float] = []

    async def run() -> list[float]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Blocked)
        lag = LoopLag(lambda late, worked: (lags.append(late), works.append(worked)))
        longest = []
        await asyncio.sleep(1.0)
        loop.block(0.050)
        for _ in range(70):
            await asyncio.sleep(1.0)
            longest.append(lag.longest)
        lag.close()
        seen = len(lags)
        await asyncio.sleep(1.0)
        assert len(lags) == seen
        return longest

    with asyncio.Runner(loop_factory=Blocked) as runner:
        longest = runner.run(run())
    assert 0.050 - PERIOD_SECONDS - 1e-6 <= max(lags) <= 0.050
    assert sum(lag > 0.001 for lag in lags) == 1
    assert longest[0] == longest[28] == max(lags)
    # The clock was moved on by hand: nobody worked for so long.
    assert max(works) < 0.030
    assert longest[-1] == pytest.approx(0.0, abs=1e-6)
