"""Sessions that go on over another TCP connection: real sockets, cut anywhere."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from conftest import Run, Running
from cutting_proxy import CuttingProxy
from fake_engine import FakeSynthesizer, Script
from test_connection import closing, hear, open_session, say
from websockets.asyncio.client import ClientConnection, connect

from gateway.client import Audio, Event, GatewayError, VoiceClient
from gateway.protocol import Pong, TurnCancelled, TurnDone

TEXT = "This is the first sentence. And here comes the second one. A third one ends it."


def comparable(events: list[Event]) -> list[Any]:
    """Events without the time they came."""
    return [
        (event.turn, event.sequence, event.position, event.samples, event.flags, event.payload)
        if isinstance(event, Audio)
        else event
        for event in events
    ]


async def spoken(client: VoiceClient, turns: int = 3) -> list[Event]:
    """Turns one after the other, their text word by word."""

    async def words() -> AsyncIterator[str]:
        for word in TEXT.split(" "):
            yield word + " "

    events: list[Event] = []
    for _ in range(turns):
        events += [event async for event in client.speak(words())]
    return events


def script(_request: object, _number: int) -> Script:
    return Script(samples=9600, chunk=4800, delay=0.001)


async def test_random_cuts_change_no_byte_of_what_comes(run: Run) -> None:
    async with run(FakeSynthesizer(script)) as running, running.client() as client:
        expected = comparable(await spoken(client))
    for seed in range(12):
        draw = random.Random(seed)
        # Sessions start with some 1.6 kB; the shortest cuts hit the handshake of a resume.
        budgets = [draw.randint(2000, 6000), *(draw.randint(50, 6000) for _ in range(6))]
        async with run(FakeSynthesizer(script)) as running:
            proxy = CuttingProxy(running.port, iter(budgets))
            async with (
                asyncio.timeout(60),
                proxy.run() as url,
                VoiceClient(url, reconnect=True) as client,
            ):
                assert comparable(await spoken(client)) == expected
                assert 1 <= client.link.resumes <= proxy.cuts
            await running.quiet()
            assert running.engine.running == 0


async def test_a_long_text_that_is_confirmed_bit_by_bit(run: Run) -> None:
    text = "One word after another is written, and the line is cut again and again. " * 40
    engine = FakeSynthesizer(lambda _request, _number: Script(samples=480))
    async with run(engine) as running:
        proxy = CuttingProxy(running.port, iter([20_000] * 10))

        async def characters() -> AsyncIterator[str]:
            for character in text:
                yield character

        async with (
            asyncio.timeout(60),
            proxy.run() as url,
            VoiceClient(url, reconnect=True, live=False) as client,
        ):
            events = [event async for event in client.speak(characters())]
            done = events[-1]
            assert isinstance(done, TurnDone)
            assert (done.characters, done.failed) == (len(text), 0)
            assert client.link.resumes >= 3
            assert len(client.link._unconfirmed) < 600
        assert "".join(r.text + " " for r in engine.requests) == text


async def test_without_reconnect_a_cut_ends_it(run: Run) -> None:
    async with run(FakeSynthesizer(script)) as running:
        proxy = CuttingProxy(running.port, iter([3000]))
        async with proxy.run() as url, VoiceClient(url) as client:
            with pytest.raises(GatewayError) as lost:
                await spoken(client)
            assert lost.value.code == "closed"
        await running.quiet()
        assert proxy.connections == 1


async def test_a_client_that_finds_no_server_in_time_gives_up(run: Run) -> None:
    async with run(FakeSynthesizer(script), resume_seconds=0.3) as running:
        proxy = CuttingProxy(running.port, iter([3000, *[0] * 1000]))
        async with proxy.run() as url, VoiceClient(url, reconnect=True) as client:
            with pytest.raises(GatewayError):
                await spoken(client)
            with pytest.raises(GatewayError):
                await client.send("ping")
        await running.quiet()
        assert proxy.connections > 2


async def test_a_session_that_is_gone_is_told_by_its_code(run: Run) -> None:
    async with run(FakeSynthesizer(script)) as running:
        proxy = CuttingProxy(running.port, iter([3000]))
        async with proxy.run() as url, VoiceClient(url, reconnect=True) as client:
            client.link.resumable("made up", 30.0)
            with pytest.raises(GatewayError) as gone:
                await spoken(client)
            assert gone.value.code == "unknown_session"
            with pytest.raises(GatewayError):
                await client.receive()
        await running.gateway.sessions.clear()
        await running.quiet()


async def test_a_session_goes_on_over_another_connection_while_the_server_drains(run: Run) -> None:
    async with run(FakeSynthesizer(script)) as running:
        proxy = CuttingProxy(running.port, iter([3000]))
        async with proxy.run() as url, VoiceClient(url, reconnect=True) as client:
            speaking = asyncio.create_task(spoken(client, turns=1))
            while not running.engine.requests:
                await asyncio.sleep(0.001)
            draining = asyncio.create_task(running.server.drain())
            assert isinstance((await speaking)[-1], TurnDone)
            assert client.link.resumes == 1
            await draining


async def test_senders_wait_for_the_new_connection(run: Run) -> None:
    async with run() as running:
        proxy = CuttingProxy(running.port, iter([]))
        async with proxy.run() as url, VoiceClient(url, reconnect=True) as client:
            await client.send("text.append", text="a")
            client.link._socket.transport.abort()
            numbers = [str(number) for number in range(600)]
            await asyncio.gather(*(client.send("ping", id=number) for number in numbers))
            answers = []
            while len(answers) < len(numbers):
                event = await client.receive()
                if isinstance(event, Pong):
                    answers.append(event.id)
            assert sorted(answers, key=int) == numbers  # type: ignore[arg-type]
            assert client.link.resumes == 1
            assert not client.link._unconfirmed


async def cut_off(peer: ClientConnection) -> None:
    """The TCP connection is reset."""
    peer.transport.abort()
    await peer.wait_closed()


async def dropped(running: Running) -> None:
    """Until the server knows that no connection is left."""
    while running.gateway.connections:
        await asyncio.sleep(0.001)


async def resume(running: Running, token: str, received: int) -> ClientConnection:
    peer = await connect(running.url.replace("http", "ws") + "/v1/stream", compression=None)
    await say(peer, "session.resume", token=token, received=received)
    return peer


async def started(running: Running) -> tuple[ClientConnection, str]:
    """A connection with a session that can be resumed, and its token."""
    peer = await connect(running.url.replace("http", "ws") + "/v1/stream", compression=None)
    await say(peer, "session.start", resume=True)
    return peer, (await hear(peer))["token"]


class TestServer:
    async def test_a_waiting_session_speaks_on_and_holds_its_place(self, run: Run) -> None:
        engine = FakeSynthesizer(lambda _request, _number: Script(samples=2400, delay=0.01))
        async with run(engine, max_sessions=1) as running:
            peer, token = await started(running)
            await say(peer, "text.append", text=TEXT)
            await say(peer, "turn.end")
            assert (await hear(peer))["type"] == "turn.started"
            await cut_off(peer)
            while len(engine.finished) < 3:
                await asyncio.sleep(0.001)
            async with connect(running.url.replace("http", "ws") + "/v1/stream") as other:
                await say(other, "session.start")
                assert (await hear(other))["code"] == "capacity"
                assert await closing(other) == (1013, "capacity")
            peer = await resume(running, token, 2)
            assert (await hear(peer))["received"] == 3
            while (message := await hear(peer))["type"] != "turn.done":
                pass
            assert message["pieces"] == 3
            await peer.close()
            await running.quiet()

    async def test_time_runs_out_and_frees_the_engine(self, run: Run) -> None:
        engine = FakeSynthesizer(lambda _request, _number: Script(hold=asyncio.Event()))
        async with run(engine, resume_seconds=0.05) as running:
            peer, token = await started(running)
            await say(peer, "text.append", text=TEXT)
            assert (await hear(peer))["type"] == "turn.started"
            await cut_off(peer)
            await running.quiet()
            assert engine.running == 0
            peer = await resume(running, token, 2)
            error = await hear(peer)
            assert (error["code"], error["fatal"]) == ("session_expired", False)
            await say(peer, "session.start")
            assert (await hear(peer))["type"] == "session.started"
            await peer.close()
            metrics = running.gateway.metrics.render().decode()
            assert 'voxgate_sessions_closed_total{code="expired"} 1.0' in metrics

    async def test_an_unknown_token_is_told_apart(self, run: Run) -> None:
        async with run() as running:
            peer = await resume(running, "made up", 0)
            assert (await hear(peer))["code"] == "unknown_session"
            await peer.close()

    async def test_the_last_messages_can_be_fetched_after_the_end(self, run: Run) -> None:
        async with run() as running:
            peer, token = await started(running)
            await say(peer, "session.end")
            assert (await hear(peer))["type"] == "session.ended"
            assert (await closing(peer))[0] == 1000
            await dropped(running)
            assert not running.gateway.sessions.live
            peer = await resume(running, token, 1)
            assert (await hear(peer))["type"] == "session.resumed"
            assert (await hear(peer))["type"] == "session.ended"
            assert (await closing(peer))[0] == 1000
            await dropped(running)

    async def test_closing_frees_everything_at_once(self, run: Run) -> None:
        engine = FakeSynthesizer(lambda _request, _number: Script(hold=asyncio.Event()))
        async with run(engine) as running:
            peer, token = await started(running)
            await say(peer, "text.append", text=TEXT)
            assert (await hear(peer))["type"] == "turn.started"
            await peer.close()
            await running.quiet()
            assert engine.running == 0
            peer = await resume(running, token, 2)
            assert (await hear(peer))["code"] == "session_expired"
            await peer.close()

    async def test_a_live_session_is_taken_over(self, run: Run) -> None:
        async with run() as running:
            old, token = await started(running)
            await say(old, "text.append", text="Hello ")
            assert (await hear(old))["type"] == "turn.started"
            new = await resume(running, token, 1)
            answer = await hear(new)
            assert (answer["received"], answer["turn_characters"]) == (2, 6)
            assert (await hear(new))["type"] == "turn.started"
            assert await closing(old) == (1008, "taken_over")
            await say(new, "text.append", text="there.")
            await say(new, "turn.end")
            while (message := await hear(new))["type"] != "turn.done":
                pass
            assert message["characters"] == 12
            assert len(running.gateway.sessions.live) == 1
            await new.close()
            await running.quiet()

    async def test_the_reader_that_stalls_may_come_back(self, run: Run) -> None:
        async with run() as running:
            peer, token = await started(running)
            (connection,) = running.gateway.connections
            connection._stalled = True
            connection.fail("slow_reader")
            assert await closing(peer) == (1008, "slow_reader")
            await dropped(running)
            peer = await resume(running, token, 1)
            assert (await hear(peer))["type"] == "session.resumed"
            await peer.close()
            await running.quiet()

    async def test_one_that_was_cut_off_for_not_reading_frees_the_engine(self, run: Run) -> None:
        engine = FakeSynthesizer(lambda _request, _number: Script(hold=asyncio.Event()))
        async with run(engine) as running:
            peer, token = await started(running)
            await say(peer, "text.append", text=TEXT)
            assert (await hear(peer))["type"] == "turn.started"
            (runner,) = running.gateway.sessions.live
            for _ in range(300):
                runner.session.receive('{"type": "ping"}', 0.0)
            runner.settle()
            assert await closing(peer) == (1008, "slow_reader")
            await running.quiet()
            assert engine.running == 0
            # It is over, but its end can be read.
            peer = await resume(running, token, 2)
            assert (await hear(peer))["type"] == "session.resumed"
            assert await closing(peer) == (1008, "slow_reader")

    async def test_a_fault_while_it_waits_ends_it(self, run: Run) -> None:
        async with run(resume_seconds=0.2) as running:
            peer, token = await started(running)
            (runner,) = running.gateway.sessions.live
            await cut_off(peer)
            await dropped(running)
            runner.crash(LookupError("a bug"))
            await runner.over
            peer = await resume(running, token, 1)
            assert (await hear(peer))["code"] == "session_expired"
            await peer.close()
            await running.quiet()

    async def test_draining_waits_only_shortly_for_those_who_are_gone(self, run: Run) -> None:
        engine = FakeSynthesizer(lambda _request, _number: Script(hold=asyncio.Event()))
        async with run(engine, drain_resume_seconds=0.05) as running:
            peer, _ = await started(running)
            await say(peer, "text.append", text=TEXT)
            assert (await hear(peer))["type"] == "turn.started"
            await cut_off(peer)
            await dropped(running)
            async with asyncio.timeout(20):
                await running.server.drain()
            assert engine.running == 0

    async def test_a_session_without_a_token_ends_with_its_connection(self, run: Run) -> None:
        async with run() as running:
            async with open_session(running) as peer:
                await cut_off(peer)
            await running.quiet()


async def test_a_cancel_across_a_cut(run: Run) -> None:
    engine = FakeSynthesizer(lambda _request, _number: Script(samples=240_000, delay=0.001))
    async with run(engine) as running:
        proxy = CuttingProxy(running.port, iter([4000]))
        async with proxy.run() as url, VoiceClient(url, reconnect=True) as client:
            events: list[Event] = []
            async for event in client.speak(TEXT):
                events.append(event)
                if client.link.resumes and not isinstance(events[-1], TurnCancelled):
                    await client.cancel(played_ms=10)
            last = events[-1]
            assert isinstance(last, TurnCancelled)
            assert last.spoken + last.unspoken == TEXT
            packets = [event.sequence for event in events if isinstance(event, Audio)]
            assert packets == list(range(len(packets)))
            assert json.dumps(last.heard_ms) == "10"
