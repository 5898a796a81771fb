"""RFC 6455 on the gateway's own socket, by raw frames: framing, pings, reserved bits and opcodes,
fragmentation, UTF-8, closing. A `ping` message is the echo. See also `test_autobahn.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import struct
from collections.abc import AsyncIterator

import pytest
from gateway_conftest import Run, Running

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
PROTOCOL_ERROR, INVALID, TOO_BIG, NORMAL = 1002, 1007, 1009, 1000


def frame(
    opcode: int, payload: bytes = b"", *, final: bool = True, rsv: int = 0, mask: bool = True
) -> bytes:
    head = bytes([final << 7 | rsv << 4 | opcode])
    size, flag = len(payload), mask << 7
    if size < 126:
        head += bytes([flag | size])
    elif size < 2**16:
        head += bytes([flag | 126]) + struct.pack("!H", size)
    else:
        head += bytes([flag | 127]) + struct.pack("!Q", size)
    if not mask:
        return head + payload
    key = os.urandom(4)
    return head + key + bytes(byte ^ key[at % 4] for at, byte in enumerate(payload))


class Wire:
    """A connection after its handshake."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, *frames: bytes, chop: int = 0) -> None:
        """`chop`: so many bytes at a time."""
        data = b"".join(frames)
        for at in range(0, len(data), chop or len(data)):
            self._writer.write(data[at : at + (chop or len(data))])
            await self._writer.drain()
            await asyncio.sleep(0)

    async def receive(self) -> tuple[int, bytes]:
        async with asyncio.timeout(10):
            first, second = await self._reader.readexactly(2)
            assert first & 0xF0 == 0x80, "whole frames, no reserved bits"
            assert second < 0x80, "servers do not mask"
            size = second
            if size == 126:
                (size,) = struct.unpack("!H", await self._reader.readexactly(2))
            elif size == 127:
                (size,) = struct.unpack("!Q", await self._reader.readexactly(8))
            return first & 0x0F, await self._reader.readexactly(size)

    async def closed(self) -> int:
        """The code of the close frame that comes next, after which there is nothing."""
        while True:
            opcode, payload = await self.receive()
            if opcode == CLOSE:
                break
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(10):
                assert await self._reader.read() == b""
        return int(struct.unpack("!H", payload[:2])[0]) if payload else 1005

    async def echoes(self, id: str) -> None:
        """The next message answers the `ping` of this id."""
        opcode, payload = await self.receive()
        assert (opcode, json.loads(payload)) == (TEXT, {"type": "pong", "id": id})


@contextlib.asynccontextmanager
async def wire(running: Running) -> AsyncIterator[Wire]:
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    writer.write(
        b"GET /v1/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
        b"Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
    )
    answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    assert answer.startswith("http/1.1 101")
    assert "sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=" in answer
    assert "sec-websocket-extensions" not in answer
    yield Wire(reader, writer)
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


def said(id: str) -> bytes:
    return json.dumps({"type": "ping", "id": id}, ensure_ascii=False).encode()


@pytest.mark.parametrize("size", [0, 125 - 24, 126, 65_535, 65_536])
@pytest.mark.parametrize("chop", [0, 997])
async def test_text_of_any_size_in_any_parts(run: Run, size: int, chop: int) -> None:
    async with run() as running, wire(running) as connection:
        await connection.send(frame(TEXT, b" " * size + said("a")), chop=chop)
        await connection.echoes("a")


async def test_pings_are_answered_in_order_and_alike(run: Run) -> None:
    async with run() as running, wire(running) as connection:
        bodies = [b"", b"hello", bytes(range(125)), os.urandom(125)]
        await connection.send(*(frame(PING, body) for body in bodies), chop=3)
        assert [await connection.receive() for _ in bodies] == [(PONG, body) for body in bodies]
        # One that was not asked for is nothing.
        await connection.send(frame(PONG, b"?"), frame(TEXT, said("a")))
        await connection.echoes("a")


async def test_fragments_with_pings_between_them(run: Run) -> None:
    async with run() as running, wire(running) as connection:
        text = said("é你😀")
        parts = [text[at : at + 1] for at in range(len(text))]
        await connection.send(frame(TEXT, parts[0], final=False))
        for part in parts[1:]:
            await connection.send(frame(CONTINUATION, part, final=False), frame(PING, part))
        await connection.send(frame(CONTINUATION))
        for part in parts[1:]:
            assert await connection.receive() == (PONG, part)
        await connection.echoes("é你😀")


@pytest.mark.parametrize(
    "frames",
    [
        [frame(TEXT, said("a"), mask=False)],
        [frame(TEXT, said("a"), rsv=4)],
        [frame(TEXT, said("a"), rsv=1)],
        [frame(0x3, b"")],
        [frame(0xB, b"")],
        [frame(PING, bytes(126))],
        [frame(CLOSE, bytes(126))],
        [frame(PING, b"", final=False)],
        [frame(CONTINUATION, b"a")],
        [frame(TEXT, b"a", final=False), frame(TEXT, b"b")],
        [frame(CLOSE, b"\x03")],
        [frame(CLOSE, struct.pack("!H", 999))],
        [frame(CLOSE, struct.pack("!H", 1004))],
        [frame(CLOSE, struct.pack("!H", 1005))],
        [frame(CLOSE, struct.pack("!H", 1006))],
        [frame(CLOSE, struct.pack("!H", 2999))],
        [frame(CLOSE, struct.pack("!H", 5000))],
    ],
)
async def test_breaches_of_the_protocol_fail_the_connection(run: Run, frames: list[bytes]) -> None:
    async with run() as running:
        async with wire(running) as connection:
            await connection.send(*frames)
            assert await connection.closed() == PROTOCOL_ERROR
        await running.quiet()


@pytest.mark.parametrize(
    "broken", [b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe4\xbd"]
)
async def test_text_that_is_not_utf8_fails_the_connection(run: Run, broken: bytes) -> None:
    async with run() as running, wire(running) as connection:
        await connection.send(
            frame(TEXT, b'{"type": "', final=False), frame(CONTINUATION, broken + b'"}')
        )
        assert await connection.closed() == INVALID


async def test_a_reason_that_is_not_utf8_fails_the_connection(run: Run) -> None:
    async with run() as running, wire(running) as connection:
        await connection.send(frame(CLOSE, struct.pack("!H", NORMAL) + b"\xff"))
        assert await connection.closed() in (INVALID, PROTOCOL_ERROR)


async def test_a_message_that_is_too_big_fails_the_connection(run: Run) -> None:
    async with run(max_message_bytes=1000) as running:
        async with wire(running) as connection:
            await connection.send(frame(TEXT, bytes(1001)))
            assert await connection.closed() == TOO_BIG
        async with wire(running) as connection:
            await connection.send(
                frame(TEXT, bytes(600), final=False), frame(CONTINUATION, bytes(600))
            )
            assert await connection.closed() == TOO_BIG


@pytest.mark.parametrize("code", [1000, 1001, 1003, 1011, 3000, 4999])
async def test_closing_is_answered_with_the_same_code(run: Run, code: int) -> None:
    async with run() as running:
        async with wire(running) as connection:
            reason = struct.pack("!H", code) + b"bye"
            await connection.send(frame(CLOSE, reason), frame(TEXT, said("late")))
            assert await connection.closed() == code
        await running.quiet()


async def test_closing_without_a_code(run: Run) -> None:
    async with run() as running, wire(running) as connection:
        await connection.send(frame(CLOSE))
        assert await connection.closed() in (1005, NORMAL)
