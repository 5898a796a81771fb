"""The listeners of chaos.py, what they hear, and the helpers of its faults."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
from processes import Gateway

from gateway.client import Audio, VoiceClient
from gateway.link import GatewayError
from gateway.protocol import Error, TurnDone

TEXT = (
    "The first sentence is long enough to be heard for some seconds. Then comes a second one, "
    "which says nothing new. The third one ends it. "
)
UPGRADE = (
    b"GET /v1/stream HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


@dataclass
class Heard:
    """What one listener got."""

    turns: int = 0
    packets: int = 0
    lost_packets: int = 0
    failed_pieces: int = 0
    code: str = ""
    """Why the session ended early; empty if it did not."""
    resumes: int = 0
    clear: bool = True
    """Whether that had a code."""

    @property
    def harmed(self) -> bool:
        return bool(self.code or self.lost_packets or self.failed_pieces)


@dataclass
class Result:
    """A row of the table."""

    fault: str
    what: str
    sessions: int = 0
    harmed: int = 0
    harmed_codes: list[str] = field(default_factory=list)
    expected: str = ""
    packets: int = 0
    packets_lost: int = 0
    resumes: int = 0
    recovery_seconds: float = 0.0
    memory_growth_mib: float = 0.0
    descriptor_growth: int = 0
    seconds: float = 0.0
    passed: bool = False
    note: str = ""
    measured: str = ""
    """Commit and day."""
    weights: list[dict[str, float]] = field(default_factory=list)
    """Of the processes, over time."""


@dataclass
class Stage:
    """A gateway and its listeners while a fault comes over them."""

    server: Gateway
    result: Result
    full: bool
    listeners: list[asyncio.Task[Heard]] = field(default_factory=list)

    def listen(self, count: int, turns: int = 2, url: str | None = None, **options: Any) -> None:
        for _ in range(count):
            talk = listen(url or self.server.url, turns, **options)
            self.listeners.append(asyncio.create_task(talk))

    async def all_heard(self) -> list[Heard]:
        heard = await asyncio.gather(*self.listeners)
        self.listeners.clear()
        self.count(heard)
        return heard

    def count(self, heard: list[Heard]) -> None:
        """Into the row of the table."""
        result = self.result
        result.sessions += len(heard)
        result.harmed += sum(each.harmed for each in heard)
        result.packets += sum(each.packets for each in heard)
        result.packets_lost += sum(each.lost_packets for each in heard)
        result.resumes += sum(each.resumes for each in heard)
        codes = {each.code or "piece failed" for each in heard if each.harmed}
        result.harmed_codes = sorted({*result.harmed_codes, *codes})

    async def recovered(self) -> None:
        """Until a new listener hears a whole turn."""
        begun = time.monotonic()
        async with asyncio.timeout(180):
            while True:
                with contextlib.suppress(GatewayError, ConnectionError):
                    heard = await listen(self.server.url, 1, text="Hello.")
                    if not heard.harmed:
                        break
                await asyncio.sleep(0.05)
        self.result.recovery_seconds = round(time.monotonic() - begun, 2)

    def open_descriptors(self) -> int:
        return psutil.Process(self.server.process.pid).num_fds()

    def memory(self) -> float:
        return psutil.Process(self.server.process.pid).memory_info().rss / 2**20


async def listen(
    url: str, turns: int, *, text: str = TEXT, reconnect: bool = True, pause: float = 0.0
) -> Heard:
    """One session of some turns, with every packet counted."""
    heard = Heard()
    expected = 0
    try:
        async with VoiceClient(url, reconnect=reconnect) as client:
            for _ in range(turns):
                async for event in client.speak(text):
                    if isinstance(event, Audio):
                        heard.packets += 1
                        heard.lost_packets += abs(event.sequence - expected)
                        expected = event.sequence + 1
                        if pause:
                            await asyncio.sleep(pause)
                    elif isinstance(event, TurnDone):
                        heard.turns += 1
                        heard.failed_pieces += event.failed
                    elif isinstance(event, Error) and event.piece is not None:
                        heard.code = event.code
            heard.resumes = getattr(client.link, "resumes", 0)
    except GatewayError as failure:
        heard.code = failure.code
        heard.clear = failure.code != "closed"
    return heard


def frame(text: str) -> bytes:
    """A masked text frame."""
    payload = text.encode()
    assert len(payload) < 126
    mask = os.urandom(4)
    body = bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload))
    return struct.pack("!BB", 0x81, 0x80 | len(payload)) + mask + body


async def read_slowly(port: int) -> None:
    """A byte a second, from a socket that holds little itself. Returns when it is closed."""
    loop = asyncio.get_running_loop()
    with socket.socket() as peer, contextlib.suppress(ConnectionError):
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.setblocking(False)
        await loop.sock_connect(peer, ("127.0.0.1", port))
        await loop.sock_sendall(peer, UPGRADE)
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += await loop.sock_recv(peer, 1)
        text = '{"type":"text.append","text":"Much to say that nobody reads, ever. "}'
        start = frame('{"type":"session.start","format":"pcm_s16le","live":false}')
        await loop.sock_sendall(peer, start + b"".join(frame(text) for _ in range(40)))
        while await loop.sock_recv(peer, 1):
            await asyncio.sleep(1)


async def drip(port: int, head: bytes) -> float:
    """Seconds until the server has enough."""
    begun = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head)
    with contextlib.suppress(ConnectionError):
        while not reader.at_eof():
            writer.write(b"\x81" if head is UPGRADE else b"a")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(reader.read(4096), 1)
    writer.transport.abort()
    return time.monotonic() - begun


async def metric(stage: Stage, name: str) -> float:
    async with httpx.AsyncClient() as http:
        page = (await http.get(stage.server.url + "/metrics")).text
    lines = [line for line in page.splitlines() if line.startswith(name + " ")]
    return float(lines[0].split()[1]) if lines else 0.0


async def settled(stage: Stage, *, sessions: int) -> None:
    """Until the gateway has so many sessions; its time is the recovery."""
    begun = time.monotonic()
    async with asyncio.timeout(60):
        while await metric(stage, "voxgate_sessions") > sessions:
            await asyncio.sleep(0.1)
    stage.result.recovery_seconds = round(time.monotonic() - begun, 2)


@contextlib.contextmanager
def small_disk(kib: int) -> Iterator[Path]:
    """A file system of so many KiB. Needs root."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", folder], check=True)
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", "-l", folder], check=True)
