"""What raw sockets get from a gateway that they try to hold."""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct

import pytest
from gateway_conftest import Run, Running

UPGRADE = (
    "GET /v1/stream HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
CHUNKED = b"POST /tts HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


async def dial(running: Running) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", running.port)


async def answer(running: Running, *request: bytes) -> bytes:
    """All that comes until the server closes."""
    reader, writer = await dial(running)
    for part in request:
        writer.write(part)
        await asyncio.sleep(0.02)
    found = b""
    with contextlib.suppress(ConnectionError):
        found = await reader.read(65536)
        while more := await reader.read(65536):
            found += more
    writer.close()
    return found


def frame(opcode: int, payload: bytes = b"", *, fin: bool = True) -> bytes:
    """A masked frame of a client."""
    mask = b"\1\2\3\4"
    head = bytes([(0x80 if fin else 0) | opcode])
    if len(payload) < 126:
        head += bytes([0x80 | len(payload)])
    else:
        head += bytes([0x80 | 126]) + struct.pack("!H", len(payload))
    return head + mask + bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload))


async def upgraded(running: Running) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await dial(running)
    writer.write(UPGRADE.encode())
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
    return reader, writer


class TestHead:
    async def test_a_connection_without_a_request_is_closed_without_an_answer(
        self, run: Run
    ) -> None:
        async with run(handshake_timeout_seconds=0.1) as running:
            assert await answer(running) == b""

    @pytest.mark.parametrize("begin", [b"G", b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\nX: "])
    async def test_a_head_that_never_ends_is_not_waited_for(self, run: Run, begin: bytes) -> None:
        async with run(handshake_timeout_seconds=0.1) as running:
            assert (await answer(running, begin)).startswith(b"HTTP/1.1 408")

    async def test_nor_one_that_drips(self, run: Run) -> None:
        async with run(handshake_timeout_seconds=0.2) as running:
            reader, writer = await dial(running)

            async def drip() -> None:
                writer.write(b"GET / HTTP/1.1\r\nX: ")
                while not writer.is_closing():
                    writer.write(b"a")
                    await asyncio.sleep(0.01)

            dripping = asyncio.create_task(drip())
            assert (await reader.read()).startswith(b"HTTP/1.1 408")
            dripping.cancel()
            writer.close()

    async def test_nor_a_second_one_on_the_same_connection(self, run: Run) -> None:
        async with run(handshake_timeout_seconds=0.2) as running:
            request = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
            found = await answer(running, request, b"GET / HTTP/1.1\r\nX:")
            assert found.startswith(b"HTTP/1.1 200")
            assert b"HTTP/1.1 408" in found

    @pytest.mark.parametrize(
        "request_",
        [
            (b"GET /" + b"a" * 9000,),
            (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 9000,),
            (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: a\r\n" * 2000,),
            (b"G" * 9000,),
            (CHUNKED, b"1;" + b"x" * 9000),
            (CHUNKED, b"0\r\n" + b"T: a\r\n" * 2000),
        ],
    )
    async def test_a_head_that_is_too_long_is_refused(
        self, run: Run, request_: tuple[bytes, ...]
    ) -> None:
        async with run(max_header_bytes=8192) as running:
            found = await answer(running, *request_)
            assert found[:12] in (b"HTTP/1.1 431", b"HTTP/1.1 400"), found[:40]
            assert (await answer(running, b"GET /health HTTP/1.0\r\n\r\n")).endswith(b"}")


class TestBody:
    async def test_one_that_is_too_large_is_refused_unread(self, run: Run) -> None:
        async with run(max_body_bytes=1000) as running:
            head = b"POST /tts HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            found = await answer(running, head + b"Content-Length: 100000\r\n\r\n")
            assert found.startswith(b"HTTP/1.1 413")
            chunk = b"3e8\r\n" + b" " * 1000 + b"\r\n"
            found = await answer(
                running, head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 2 + b"0\r\n\r\n"
            )
            assert found.startswith(b"HTTP/1.1 413")

    async def test_one_that_never_ends_is_not_waited_for(self, run: Run) -> None:
        async with run(body_timeout_seconds=0.1) as running:
            head = b"POST /tts HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            found = await answer(running, head + b"Content-Length: 10\r\n\r\n{")
            assert found.startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize(
    "request_",
    [
        # Two lengths, a length beside chunks, chunks in disguise: what smuggles a second request
        # past a proxy.
        b"POST /tts HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"POST /tts HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"0\r\n\r\nGET /health HTTP/1.1\r\n\r\n",
        b"POST /tts HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"POST /tts HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        b"POST /tts HTTP/1.1\r\nHost: x\r\nContent-Length: +5\r\n\r\nhello",
        b"GET / HTTP/1.1\nHost: x\n\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n Folded: y\r\n\r\n",
        b"GET / HTTP/1.1\r\nHo\0st: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
    ],
)
async def test_what_smuggles_is_refused(run: Run, request_: bytes) -> None:
    async with run(handshake_timeout_seconds=0.3, body_timeout_seconds=0.3) as running:
        found = await answer(running, request_)
        assert found[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 408", b"HTTP/1.1 501"), found[:60]
        assert found.count(b"HTTP/1.1") == 1


class TestSockets:
    async def test_there_is_an_end_to_connections(self, run: Run) -> None:
        async with run(max_connections=3) as running:
            held = [await dial(running) for _ in range(3)]
            await asyncio.sleep(0.05)
            assert (await answer(running, b"")).startswith(b"HTTP/1.1 503")
            for _, writer in held:
                writer.close()
            while running.server.server_state.connections:
                await asyncio.sleep(0.005)
            assert (await answer(running, b"GET /health HTTP/1.0\r\n\r\n")).startswith(
                b"HTTP/1.1 200"
            )

    async def test_and_to_those_of_one_address_websockets_too(self, run: Run) -> None:
        async with run(max_connections_per_client=2) as running:
            held = [await upgraded(running), await dial(running)]
            await asyncio.sleep(0.05)
            assert (await answer(running, b"")).startswith(b"HTTP/1.1 503")
            for _, writer in held:
                writer.close()
            await running.quiet()
            while running.server.server_state.connections:
                await asyncio.sleep(0.005)
            for _ in range(5):
                _, writer = await upgraded(running)
                writer.close()
                await running.quiet()
                while running.server.server_state.connections:
                    await asyncio.sleep(0.005)


class TestFrames:
    async def test_fragments_without_end_are_refused(self, run: Run) -> None:
        async with run() as running:
            reader, writer = await upgraded(running)
            writer.write(frame(1, b"x", fin=False) + frame(0, fin=False) * 5000)
            found = await reader.read()
            assert b"too many fragments" in found
            writer.close()
            await running.quiet()

    async def test_pings_whose_answers_nobody_reads_end(self, run: Run) -> None:
        async with run() as running:
            reader, writer = await upgraded(running)
            reader._transport.pause_reading()  # type: ignore[attr-defined]
            ping = frame(9, os.urandom(125)) * 1000
            with contextlib.suppress(ConnectionError):
                while running.gateway.sessions.live:
                    writer.write(ping)
                    await writer.drain()
            writer.transport.abort()
            await running.quiet()

    @pytest.mark.parametrize(
        "bad",
        [
            bytes([0x81, 0x05]) + b"hello",  # unmasked
            frame(3, b"x"),  # reserved opcode
            bytes([0xC1]) + frame(1, b"x")[1:],  # a compressed frame that was not agreed on
            frame(9, b"x" * 126),  # a long ping
            frame(8, b"\x00"),  # half a close code
            frame(0, b"x"),  # continues nothing
            frame(1, b"\xff\xfe"),  # not UTF-8
            bytes([0x81, 0xFF]) + b"\xff" * 8 + b"\1\2\3\4",  # 2^64 bytes to come
        ],
    )
    async def test_broken_frames_end_the_connection(self, run: Run, bad: bytes) -> None:
        async with run() as running:
            reader, writer = await upgraded(running)
            writer.write(bad)
            found = await asyncio.wait_for(reader.read(), 10)
            assert found[0] == 0x88
            writer.close()
            await running.quiet()
