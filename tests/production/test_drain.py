"""A gateway that is told to stop, as a process: what its clients see, and how it ends."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
import wave
from pathlib import Path
from typing import Any

from processes import gateway
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

TEXT = "One sentence that takes a while. And another one, just as long as that. "


async def talk(peer: ClientConnection, **start: Any) -> None:
    await peer.send(json.dumps({"type": "session.start", **start}))
    while True:
        raw = await peer.recv()
        if isinstance(raw, str) and json.loads(raw)["type"] == "session.started":
            return


async def until_closed(
    peer: ClientConnection,
) -> tuple[list[dict[str, Any]], int, ConnectionClosed]:
    """JSON messages, number of packets, and how it was closed."""
    messages, packets = [], 0
    while True:
        try:
            raw = await peer.recv()
        except ConnectionClosed as closed:
            return messages, packets, closed
        if isinstance(raw, str):
            messages.append(json.loads(raw))
        else:
            packets += 1


def of(messages: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [message for message in messages if message["type"] == kind]


async def test_live_turns_end_and_nobody_new_comes_in() -> None:
    async with gateway("--drain-url", "wss://elsewhere.example/v1/stream") as server:
        stream = server.url.replace("http", "ws") + "/v1/stream"
        async with connect(stream) as writing, connect(stream) as idle:
            await talk(writing)
            await talk(idle)
            await writing.send(json.dumps({"type": "text.append", "text": TEXT}))
            while isinstance(await writing.recv(), str):
                pass
            server.signal(signal.SIGTERM)
            messages, _, closed = await until_closed(idle)
            assert [m["type"] for m in messages] == ["server.draining", "session.ended"]
            assert messages[0]["url"] == "wss://elsewhere.example/v1/stream"
            assert closed.rcvd is not None
            assert (closed.rcvd.code, closed.rcvd.reason) == (1012, "draining")
            # The process lives, is not ready, and refuses by a status that a balancer understands.
            assert await server.status("/health") == 200
            assert await server.status("/health/ready") == 503
            try:
                async with connect(stream):
                    raise AssertionError("a draining server let a session in")
            except InvalidStatus as refused:
                assert refused.response.status_code == 503
                assert "retry-after" in refused.response.headers
            # The writer may finish its turn.
            more = "The last words of the turn."
            await writing.send(json.dumps({"type": "text.append", "text": more}))
            await writing.send('{"type": "turn.end"}')
            messages, packets, closed = await until_closed(writing)
            [done] = of(messages, "turn.done")
            assert done["characters"] == len(TEXT + more)
            assert done["failed"] == 0
            assert packets > 0
            assert closed.rcvd is not None
            assert closed.rcvd.code == 1012
        assert await server.process.wait() == 0


async def test_at_the_deadline_the_client_learns_what_was_not_heard() -> None:
    async with gateway("--drain-seconds", "1", "--drain-resume-seconds", "0.5") as server:
        async with connect(server.url.replace("http", "ws") + "/v1/stream") as peer:
            await talk(peer)
            text = TEXT * 10
            await peer.send(json.dumps({"type": "text.append", "text": text}))
            while isinstance(await peer.recv(), str):
                pass
            begun = time.monotonic()
            server.signal(signal.SIGTERM)
            messages, _, closed = await until_closed(peer)
        [cancelled] = of(messages, "turn.cancelled")
        assert cancelled["spoken"] + cancelled["unspoken"] == text
        assert cancelled["unspoken"]
        assert closed.rcvd is not None
        assert closed.rcvd.code == 1012
        assert await server.process.wait() == 0
        assert time.monotonic() - begun < 20


async def test_say_tells_what_a_gateway_that_stops_left_out(tmp_path: Path) -> None:
    async with gateway("--drain-seconds", "1", "--drain-resume-seconds", "0.5") as server:
        out = tmp_path / "out.wav"
        say = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gateway.cli", "say", TEXT * 20),
            *("--url", server.url, "-o", str(out)),
            stderr=asyncio.subprocess.PIPE,
        )
        while not out.exists() or out.stat().st_size < 50_000:
            await asyncio.sleep(0.02)
        server.signal(signal.SIGTERM)
        _, told = await say.communicate()
        assert say.returncode == 1
        assert "The gateway stopped before the end. Not said: " in " ".join(told.decode().split())
        assert " 0.0 s of speech" not in told.decode()
        assert await server.process.wait() == 0
    with wave.open(str(out)) as file:
        assert file.getnframes() > 20_000


async def test_a_client_that_lost_its_connection_comes_back_and_loses_nothing() -> None:
    async with gateway() as server:
        stream = server.url.replace("http", "ws") + "/v1/stream"
        async with connect(stream) as peer:
            await peer.send('{"type": "session.start", "resume": true}')
            token = json.loads(await peer.recv())["token"]
            await peer.send(json.dumps({"type": "text.append", "text": TEXT}))
            await peer.send('{"type": "turn.end"}')
            received = 1
            sequences: list[int] = []
            while len(sequences) < 5:
                raw = await peer.recv()
                received += 1
                if isinstance(raw, bytes):
                    sequences.append(int.from_bytes(raw[8:12], "little"))
            peer.transport.abort()
        server.signal(signal.SIGTERM)
        await asyncio.sleep(0.3)
        async with connect(stream) as peer:
            request = {"type": "session.resume", "token": token, "received": received}
            await peer.send(json.dumps(request))
            ended = False
            try:
                while True:
                    raw = await peer.recv()
                    if isinstance(raw, bytes):
                        sequences.append(int.from_bytes(raw[8:12], "little"))
                    else:
                        ended |= json.loads(raw)["type"] == "turn.done"
            except ConnectionClosed:
                pass
        assert ended
        assert sequences == list(range(len(sequences)))
        assert await server.process.wait() == 0
