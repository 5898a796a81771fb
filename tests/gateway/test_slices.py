from __future__ import annotations

import asyncio

from simulated import Loop

from gateway.slices import Slices

SESSIONS, PIECES = 20, 30


def test_no_turn_of_the_loop_gets_more_than_its_share() -> None:
    worked: list[tuple[int, int]] = []

    async def run() -> None:
        loop, slices = asyncio.get_running_loop(), Slices(0.004)
        turn = 0

        def count() -> None:
            nonlocal turn
            turn += 1
            loop.call_soon(count)

        loop.call_soon(count)

        async def session(number: int) -> None:
            for _ in range(PIECES):
                await slices.turn()
                worked.append((turn, number))
                slices.spent(0.0015)

        await asyncio.gather(*(session(number) for number in range(SESSIONS)))

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(run())
    assert len(worked) == SESSIONS * PIECES
    late = worked[SESSIONS:]
    per_turn = [sum(at == turn for at, _ in late) for turn in {at for at, _ in late}]
    # The one that goes over is the last.
    assert max(per_turn) <= 3
    # In the order in which they ask, whoever has much to do.
    rounds = [number for _, number in late[: 10 * SESSIONS]]
    assert all(rounds.count(number) >= 9 for number in range(SESSIONS))


def test_who_asks_alone_hardly_waits() -> None:
    async def run() -> float:
        loop, slices = asyncio.get_running_loop(), Slices(0.004)
        for _ in range(10):
            await slices.turn()
            slices.spent(1.0)
        return loop.time()

    with asyncio.Runner(loop_factory=Loop) as runner:
        assert runner.run(run()) == 1000.0


def test_who_gives_up_keeps_nobody_waiting() -> None:
    async def run() -> None:
        slices = Slices(0.004)
        waiting = [asyncio.create_task(slices.turn()) for _ in range(3)]
        slices.spent(1.0)
        await asyncio.sleep(0)
        waiting[0].cancel()
        async with asyncio.timeout(1.0):
            done = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(done[0], asyncio.CancelledError)
        assert done[1:] == [None, None]

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(run())
