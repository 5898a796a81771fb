"""Three times the load the engine can carry, in simulated time: who was let in hears no gap."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from simulated import BoundedEngine, Loop, Refused, Socket
from starlette.applications import Starlette

from bench.player import Player
from gateway.app import Gateway, routes
from gateway.http.pages import Pages
from gateway.settings import Settings

SENTENCE = "The committee met again on the second floor, and nobody could say for how long. "
_END = 0.001


@dataclass
class Listener:
    """Comes, is sent away and comes again, or stays and is read to without end."""

    app: Any
    number: int
    arrives: float
    silent: float = 0.0
    """Seconds of silence between turns, on average."""
    gaps: list[float] = field(default_factory=list)
    refusals: list[Refused] = field(default_factory=list)
    turns: int = 0
    admitted_at: float | None = None

    async def live(self, until: float) -> None:
        loop, rng = asyncio.get_running_loop(), random.Random(self.number)
        await asyncio.sleep(self.arrives)
        while loop.time() < until - _END:
            socket = Socket(self.app, f"10.0.0.{self.number}")
            try:
                await socket.open()
            except Refused as refused:
                self.refusals.append(refused)
                await asyncio.sleep(int(refused.body["retry_after_ms"]) / 1000)
                continue
            self.admitted_at = loop.time()
            socket.send("session.start", format="pcm_s16le", frame_ms=60)
            assert (await socket.receive())["type"] == "session.started"  # type: ignore[index]
            while loop.time() < until - _END:
                await self._turn(socket, until)
                await asyncio.sleep(rng.expovariate(1.0) * self.silent)
            await socket.close()

    async def _turn(self, socket: Socket, until: float) -> None:
        loop, player = asyncio.get_running_loop(), Player()
        socket.send("text.append", text=SENTENCE * 3)
        socket.send("turn.end")
        while loop.time() < until - _END:
            try:
                async with asyncio.timeout_at(until):
                    item = await socket.receive()
            except TimeoutError:
                break
            if isinstance(item, int):
                player.push(loop.time(), item)
            elif item["type"] == "turn.done":
                self.turns += 1
                player.stop(loop.time(), complete=True)
                await asyncio.sleep(max(0.0, player.runs_dry_at - loop.time()))
                break
            else:
                assert item["type"] in ("turn.started", "caption"), item
        else:
            player.stop(loop.time(), complete=False)
        self.gaps += player.gaps


@dataclass
class Outcome:
    listeners: list[Listener]
    gateway: Gateway
    pressures: list[float]

    @property
    def admitted(self) -> list[Listener]:
        return [listener for listener in self.listeners if listener.admitted_at is not None]

    @property
    def dry(self) -> list[Listener]:
        return [listener for listener in self.listeners if listener.gaps]


def overload(
    engine: BoundedEngine,
    listeners: int,
    *,
    within: float,
    seconds: float = 60.0,
    silent: float = 0.0,
    **settings: Any,
) -> Outcome:
    """So many listeners arrive within some seconds; what became of them after `seconds`."""

    async def run() -> Outcome:
        loop = asyncio.get_running_loop()
        gateway = Gateway(Settings(**settings), engine, clock=loop.time)
        await gateway.start()
        watching = asyncio.create_task(gateway.watch())
        app = Starlette(routes=routes(gateway, Pages()))
        rng = random.Random(7)
        everyone = [
            Listener(app, number, rng.uniform(0.0, within), silent) for number in range(listeners)
        ]
        until = loop.time() + seconds
        pressures: list[float] = []

        async def note() -> None:
            while True:
                await asyncio.sleep(1.0)
                pressures.append(
                    gateway.admission.pressure(len(gateway.sessions.live), loop.time())
                )

        noting = asyncio.create_task(note())
        await asyncio.gather(*(listener.live(until) for listener in everyone))
        for task in (watching, noting):
            task.cancel()
        await asyncio.gather(watching, noting, return_exceptions=True)
        return Outcome(everyone, gateway, pressures)

    with asyncio.Runner(loop_factory=Loop) as runner:
        return runner.run(run())


@pytest.mark.parametrize(
    ("engine", "within", "least"),
    [
        pytest.param(BoundedEngine(5.0, 1.0), 10.0, 0.75, id="two-cores"),
        pytest.param(BoundedEngine(5.0, 1.0), 0.0, 0.75, id="all-at-once"),
        pytest.param(BoundedEngine(5.0, 1.0, counts=False), 10.0, 0.75, id="no-counters"),
        pytest.param(BoundedEngine(2.0, 1.5), 10.0, 0.75, id="pieces-cost"),
        pytest.param(BoundedEngine(15.0, 0.4, rests=False), 10.0, 0.5, id="steps-cost"),
    ],
)
def test_three_times_the_load(engine: BoundedEngine, within: float, least: float) -> None:
    outcome = overload(engine, int(3 * engine.gapless), within=within)
    assert [listener.number for listener in outcome.dry] == []
    # Neither a fixed number nor timid: most of what the engine can do is used.
    assert least * engine.gapless <= len(outcome.admitted) <= engine.gapless
    early = [each for each in outcome.admitted if (each.admitted_at or 0.0) < 1030.0]
    assert early
    assert all(each.turns for each in early)
    away = [listener for listener in outcome.listeners if listener.admitted_at is None]
    assert away
    assert all(listener.refusals for listener in away)
    for refused in (refusal for listener in away for refusal in listener.refusals):
        assert refused.status == 503
        assert (refused.body["code"], refused.body["fatal"]) == ("capacity", True)
        after = refused.body["retry_after_ms"]
        assert 2000 <= after <= 30_000
        assert int(refused.headers["retry-after"]) * 1000 >= after
    assert all(0.75 < pressure < 1.25 for pressure in outcome.pressures[30:55])
    counted = outcome.gateway.metrics.render().decode()
    assert "voxgate_admission_pressure" in counted


def test_silent_sessions_leave_room() -> None:
    engine = BoundedEngine(5.0, 1.0)
    outcome = overload(engine, 60, within=20.0, seconds=120.0, silent=30.0)
    assert len(outcome.admitted) > 1.3 * engine.gapless
    assert [listener.number for listener in outcome.dry] == []


def test_a_light_load_is_never_refused() -> None:
    engine = BoundedEngine(5.0, 1.0)
    outcome = overload(engine, 6, within=5.0, seconds=30.0)
    assert len(outcome.admitted) == 6
    assert not any(listener.refusals for listener in outcome.listeners)
    assert max(outcome.pressures) < 0.8


def test_an_engine_too_slow_for_one_still_serves_one() -> None:
    engine = BoundedEngine(40.0, 5.0)
    outcome = overload(engine, 6, within=20.0, seconds=30.0)
    assert 1 <= len(outcome.admitted) <= 2


def test_the_share_can_be_switched_off() -> None:
    engine = BoundedEngine(5.0, 1.0)
    outcome = overload(engine, 24, within=5.0, seconds=20.0, capacity_share=0.0)
    assert len(outcome.admitted) == 24
    assert outcome.dry
