"""The wire as a client meets it: a real server, real sockets, a scripted engine."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import socket
import struct
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from conftest import Run, Running
from fake_engine import FakeSynthesizer, Script
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from engine.api import SpeechError
from gateway.protocol import AudioFlag, unpack_audio
from gateway.session import Session
from gateway.settings import Settings
from gateway.transport import LINGER_SECONDS

TEXT = "This is the first sentence. And here comes the second one."


@contextlib.asynccontextmanager
async def open_session(running: Running, **start: Any) -> AsyncIterator[ClientConnection]:
    url = running.url.replace("http", "ws") + "/v1/stream"
    async with connect(url, compression=None) as peer:
        await say(peer, "session.start", **start)
        assert (await hear(peer))["type"] == "session.started"
        yield peer


async def say(peer: ClientConnection, type: str, **values: Any) -> None:
    await peer.send(json.dumps({"type": type, **values}))


async def hear(peer: ClientConnection) -> dict[str, Any]:
    """The next JSON message."""
    async with asyncio.timeout(60):
        while True:
            raw = await peer.recv()
            if isinstance(raw, str):
                message: dict[str, Any] = json.loads(raw)
                return message


async def hear_all(peer: ClientConnection, until: str) -> list[dict[str, Any] | bytes]:
    """Everything up to a JSON message of this type."""
    heard: list[dict[str, Any] | bytes] = []
    async with asyncio.timeout(60):
        while True:
            raw = await peer.recv()
            heard.append(raw if isinstance(raw, bytes) else json.loads(raw))
            if isinstance(raw, str) and heard[-1]["type"] == until:  # type: ignore[index,call-overload]
                return heard


async def closing(peer: ClientConnection) -> tuple[int, str]:
    """Code and reason of the close frame."""
    with pytest.raises(ConnectionClosed) as closed:
        async with asyncio.timeout(60):
            while True:
                await peer.recv()
    received = closed.value.rcvd
    assert received is not None
    return received.code, received.reason


async def test_a_turn_comes_as_opus_with_headers(run: Run) -> None:
    async with run() as running, open_session(running) as peer:
        await say(peer, "text.append", text=TEXT)
        await say(peer, "turn.end")
        heard = await hear_all(peer, "turn.done")
        audio = [unpack_audio(message) for message in heard if isinstance(message, bytes)]
        assert [header.sequence for header, _ in audio] == list(range(len(audio)))
        assert {(header.kind, header.turn, header.samples) for header, _ in audio} == {(1, 1, 480)}
        assert [header.position for header, _ in audio] == [480 * i for i in range(len(audio))]
        assert [bool(header.flags & AudioFlag.FIRST) for header, _ in audio].count(True) == 1
        assert heard[-1]["packets"] == len(audio)  # type: ignore[index,call-overload]


async def test_closing_the_socket_cancels_everything_at_once(run: Run) -> None:
    engine = FakeSynthesizer(lambda _request, _number: Script(samples=24_000 * 60, delay=0.001))
    async with run(engine) as running:
        async with open_session(running) as peer:
            await say(peer, "text.append", text=TEXT)
            while not isinstance(await peer.recv(), bytes):
                pass
        await running.quiet()
        assert engine.running == 0
        assert engine.closed == [0]


async def test_a_reset_connection_cancels_everything_at_once(run: Run) -> None:
    engine = FakeSynthesizer(lambda _request, _number: Script(hold=asyncio.Event()))
    async with run(engine) as running, open_session(running) as peer:
        await say(peer, "text.append", text=TEXT)
        while not engine.running:
            await asyncio.sleep(0.001)
        raw = peer.transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.transport.abort()
        await running.quiet()
        assert engine.running == 0


async def test_cancel_stops_the_engine_and_the_session_lives_on(run: Run) -> None:
    def script(_request: object, number: int) -> Script:
        return Script(samples=24_000 * 60, delay=0.001) if number == 0 else Script()

    engine = FakeSynthesizer(script)
    async with run(engine) as running, open_session(running) as peer:
        await say(peer, "text.append", text=TEXT)
        while not isinstance(await peer.recv(), bytes):
            pass
        await say(peer, "turn.cancel", played_ms=0)
        await say(peer, "text.append", text="Something else.")
        await say(peer, "turn.end")
        old = await hear_all(peer, "turn.cancelled")
        assert old[-1]["unspoken"] == TEXT  # type: ignore[index,call-overload]
        new = await hear_all(peer, "turn.done")
        turns = {unpack_audio(message)[0].turn for message in new if isinstance(message, bytes)}
        assert turns == {2}
        assert engine.closed == [0]
        assert engine.running == 0
    metrics = running.gateway.metrics.render().decode()
    assert "voxgate_cancel_seconds_count 1.0" in metrics


async def test_a_piece_that_fails_is_tried_again_then_named(run: Run) -> None:
    def script(_request: object, number: int) -> Script:
        retryable = SpeechError("engine_restarting", "Restarting.", retryable=True)
        if number == 0:
            return Script(fail_after=0, error=retryable)
        if number == 2:
            return Script(fail_after=0, error=RuntimeError("a bug"))
        if number == 3:
            heard: dict[str, Any] = {
                "samples": 48_000,
                "chunk": 24_000,
                "fail_after": 1,
                "delay": 0.2,
            }
            return Script(**heard, error=RuntimeError("a bug"))
        if number == 4:
            return Script(final=False)
        return Script()

    engine = FakeSynthesizer(script)
    async with run(engine) as running, open_session(running) as peer:
        await say(peer, "text.append", text=TEXT + " A third one follows.")
        await say(peer, "turn.end")
        heard = [m for m in await hear_all(peer, "turn.done") if isinstance(m, dict)]
        errors = [(m["code"], m["piece"]) for m in heard if m["type"] == "error"]
        assert errors == [("piece_failed", 1), ("piece_failed", 2)]
        assert heard[-1]["failed"] == 2
        assert len(engine.requests) == 5


async def test_many_messages_in_one_write_are_all_taken(run: Run) -> None:
    async with run() as running, open_session(running) as peer:
        for index in range(500):
            await say(peer, "text.append", text=f"{index} ")
            if index % 100 == 0:
                await say(peer, "ping", id=str(index))
        await say(peer, "turn.end")
        heard = [m for m in await hear_all(peer, "turn.done") if isinstance(m, dict)]
        assert [m["id"] for m in heard if m["type"] == "pong"] == ["0", "100", "200", "300", "400"]
        assert heard[-1]["characters"] == sum(len(f"{index} ") for index in range(500))


async def test_messages_that_come_too_fast_are_read_later_and_not_lost(run: Run) -> None:
    async with (
        run(messages_per_second=200.0) as running,
        open_session(running) as peer,
        open_session(running) as other,
    ):
        began = time.monotonic()
        for index in range(500):
            await say(peer, "ping", id=str(index))
        await say(other, "ping", id="other")
        assert (await hear(other))["id"] == "other"
        assert [(await hear(peer))["id"] for _ in range(500)] == [str(i) for i in range(500)]
        # 400 of them at once; the last is answered before it is waited for.
        assert time.monotonic() - began >= 99 / 200


class TestTheProtocolsOwnRules:
    async def test_invalid_utf8_closes_with_1007(self, run: Run) -> None:
        async with run() as running, open_session(running) as peer:
            await peer.send(b'{"type":"ping","id":"\xff"}', text=True)
            assert await closing(peer) == (1007, "invalid_utf8")
            await running.quiet()

    async def test_too_large_a_message_closes_with_1009(self, run: Run) -> None:
        async with run(max_message_bytes=1000) as running, open_session(running) as peer:
            await say(peer, "text.append", text="x" * 1000)
            assert (await closing(peer))[0] == 1009
            await running.quiet()

    async def test_a_fragmented_message_is_one(self, run: Run) -> None:
        async with run() as running, open_session(running) as peer:
            await peer.send(iter(['{"type":"pi', 'ng","id":"', '七"}']))
            assert await hear(peer) == {"type": "pong", "id": "七"}

    async def test_binary_is_refused_and_the_session_lives(self, run: Run) -> None:
        async with run() as running, open_session(running) as peer:
            await peer.send(b"hello")
            assert (await hear(peer))["code"] == "binary_not_accepted"
            await say(peer, "ping", id="1")
            assert (await hear(peer))["id"] == "1"

    async def test_without_a_start_the_socket_closes(self, run: Run) -> None:
        async with run(start_timeout_seconds=0.05) as running:
            url = running.url.replace("http", "ws") + "/v1/stream"
            async with connect(url, compression=None) as peer:
                assert (await hear(peer))["code"] == "start_timeout"
                assert await closing(peer) == (1008, "start_timeout")

    async def test_session_end_closes_with_1000(self, run: Run) -> None:
        async with run() as running, open_session(running) as peer:
            await say(peer, "session.end")
            assert (await hear(peer))["type"] == "session.ended"
            assert (await closing(peer))[0] == 1000


class DeafSocket:
    """A client that speaks WebSocket by hand and then neither reads nor answers."""

    def __init__(self) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)

    async def connect(self, port: int) -> None:
        self.socket.connect(("127.0.0.1", port))
        self.socket.sendall(
            b"GET /v1/stream HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        self.socket.setblocking(False)
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            answer += await asyncio.get_running_loop().sock_recv(self.socket, 1)
        self.socket.setblocking(True)

    def send(self, **message: Any) -> None:
        data = json.dumps(message).encode()
        mask = b"\0\0\0\0"
        size = bytes([0x80 | len(data)]) if len(data) < 126 else struct.pack(">BH", 0xFE, len(data))
        self.socket.sendall(b"\x81" + size + mask + data)


async def test_a_reader_that_takes_nothing_is_dropped_and_frees_everything(run: Run) -> None:
    engine = FakeSynthesizer(lambda _request, _number: Script(samples=24_000 * 120, chunk=24_000))
    async with run(
        engine, stall_limit_seconds=0.6, audio_buffer_seconds=2.0, hold_lead_seconds=1e9
    ) as running:
        deaf = DeafSocket()
        await deaf.connect(running.port)
        deaf.send(type="session.start", format="pcm_s16le")
        deaf.send(type="text.append", text=TEXT)
        while not engine.requests:
            await asyncio.sleep(0.005)
        async with asyncio.timeout(60):
            await running.quiet()
        assert engine.running == 0
        # The engine was held back: most of the two minutes was never asked for.
        assert 0 not in engine.finished
        metrics = running.gateway.metrics.render().decode()
        assert 'voxgate_sessions_closed_total{code="slow_reader"} 1.0' in metrics
        async with asyncio.timeout(60):
            while running.server.server_state.connections:
                await asyncio.sleep(0.01)
        deaf.socket.close()


async def test_a_peer_that_is_silently_gone_is_found_by_pings(run: Run) -> None:
    engine = FakeSynthesizer(lambda _request, _number: Script(hold=asyncio.Event()))
    async with run(engine, ping_interval_seconds=0.1, ping_timeout_seconds=0.2) as running:
        deaf = DeafSocket()
        await deaf.connect(running.port)
        deaf.send(type="session.start")
        deaf.send(type="text.append", text=TEXT)
        while not engine.running:
            await asyncio.sleep(0.005)
        async with asyncio.timeout(60):
            await running.quiet()
            while running.server.server_state.connections:
                await asyncio.sleep(0.01)
        assert engine.running == 0
        deaf.socket.close()


def test_by_default_a_dead_peer_is_found_within_thirty_seconds() -> None:
    settings = Settings()
    asked = settings.ping_interval_seconds + settings.ping_timeout_seconds
    asked_again = 2 * settings.ping_timeout_seconds
    assert max(asked, asked_again) + LINGER_SECONDS <= 30


async def test_a_silent_peer_of_a_session_that_may_resume_is_waited_for_only_so_long(
    run: Run,
) -> None:
    engine = FakeSynthesizer(lambda _request, _number: Script(hold=asyncio.Event()))
    async with run(
        engine, ping_interval_seconds=0.1, ping_timeout_seconds=0.2, resume_seconds=0.2
    ) as running:
        deaf = DeafSocket()
        await deaf.connect(running.port)
        deaf.send(type="session.start", resume=True)
        deaf.send(type="text.append", text=TEXT)
        while not engine.running:
            await asyncio.sleep(0.005)
        async with asyncio.timeout(60):
            await running.quiet()
        assert engine.running == 0
        metrics = running.gateway.metrics.render().decode()
        assert 'voxgate_sessions_closed_total{code="expired"} 1.0' in metrics
        deaf.socket.close()


async def test_a_peer_that_sends_but_cannot_read_the_ping_yet_is_alive(run: Run) -> None:
    async with run(ping_interval_seconds=0.05, ping_timeout_seconds=0.05) as running:
        deaf = DeafSocket()
        await deaf.connect(running.port)
        deaf.send(type="session.start")
        protocol = next(iter(running.server.server_state.connections))
        pings = 0
        while pings < 3:
            before = protocol.pending_ping_payload
            while protocol.pending_ping_payload == before:
                deaf.send(type="ping")
                await asyncio.sleep(0.02)
            pings += 1
            assert running.gateway.sessions.live
        async with asyncio.timeout(60):
            await running.quiet()
        deaf.socket.close()


async def test_a_busy_loop_does_not_take_a_live_peer_for_dead(run: Run) -> None:
    async with run(ping_interval_seconds=30, ping_timeout_seconds=0.2) as running:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            PEER,
            running.url.replace("http", "ws") + "/v1/stream",
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"started\n"
        (protocol,) = running.server.server_state.connections
        for _ in range(3):
            protocol.ping_timer.cancel()
            protocol.send_keepalive_ping()
            time.sleep(0.5)  # noqa: ASYNC251 - the pong comes meanwhile
            while protocol.ping_timer is None and not protocol.transport.is_closing():
                await asyncio.sleep(0.001)
        process.terminate()
        assert await process.stdout.readline() == b""
        await process.wait()


PEER = """
import json, sys
from websockets.sync.client import connect

with connect(sys.argv[1], compression=None) as peer:
    peer.send(json.dumps({"type": "session.start"}))
    peer.recv()
    print("started", flush=True)
    try:
        peer.recv()
    except Exception as closed:
        print(closed, flush=True)
"""


async def test_a_client_that_answers_pings_may_stay_silent(run: Run) -> None:
    async with (
        run(ping_interval_seconds=0.05, ping_timeout_seconds=0.2) as running,
        open_session(running) as peer,
    ):
        await asyncio.sleep(0.5)
        await say(peer, "ping", id="still here")
        assert (await hear(peer))["id"] == "still here"


async def test_a_fault_inside_ends_the_session_with_1011(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = FakeSynthesizer(lambda _request, _number: Script(hold=asyncio.Event()))
    async with run(engine) as running:
        for name in ("receive", "take", "tick"):
            async with open_session(running) as peer:
                await say(peer, "text.append", text=TEXT)
                while not engine.running:
                    await asyncio.sleep(0.001)
                (connection,) = running.gateway.connections

                def broken(*_: object) -> None:
                    raise LookupError("a bug")

                runner = connection.runner
                assert runner is not None
                monkeypatch.setattr(runner.session, name, broken)
                if name == "tick":
                    runner._tick()
                else:
                    await say(peer, "ping")
                assert await closing(peer) == (1011, "internal")
            await running.quiet()
            assert engine.running == 0


async def test_two_hundred_broken_off_sessions_leave_nothing_behind(run: Run) -> None:
    engine = FakeSynthesizer(lambda _request, _number: Script(samples=24_000 * 4, delay=0.005))

    async def break_off(running: Running, number: int) -> None:
        async with open_session(running) as peer:
            await say(peer, "text.append", text=TEXT)
            while not isinstance(await peer.recv(), bytes):
                pass
            if number % 2:
                peer.transport.abort()

    async with run(engine) as running:
        tasks = len(asyncio.all_tasks())
        for start in range(0, 200, 20):
            await asyncio.gather(*(break_off(running, start + i) for i in range(20)))
        await running.quiet()
        async with asyncio.timeout(60):
            while running.server.server_state.connections or len(asyncio.all_tasks()) > tasks:
                await asyncio.sleep(0.01)
        assert engine.running == 0
        gc.collect()
        assert not [thing for thing in gc.get_objects() if isinstance(thing, Session)]


async def test_sessions_do_not_disturb_each_other(run: Run) -> None:
    engine = FakeSynthesizer(lambda _request, _number: Script(samples=9600, delay=0.0005))

    async def one(running: Running, number: int) -> int:
        async with open_session(running) as peer:
            await say(peer, "text.append", text=f"I am listener {number}. {TEXT}")
            await say(peer, "turn.end")
            heard = await hear_all(peer, "turn.done")
            texts = [m["text"] for m in heard if isinstance(m, dict) and m.get("final")]
            assert "".join(texts) == f"I am listener {number}. {TEXT}"
            done = heard[-1]
            assert isinstance(done, dict)
            return int(done["samples"])

    async with run(engine) as running:
        lengths = await asyncio.gather(*(one(running, number) for number in range(20)))
        assert len(set(lengths)) == 1
        await running.quiet()
        assert engine.running == 0
