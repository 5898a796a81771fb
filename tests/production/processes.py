"""Gateways as processes of their own, for what only a process can do: be killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

HERE = Path(__file__).parent


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        return int(reserved.getsockname()[1])


@dataclass
class Gateway:
    """`voxgate serve` in a process."""

    process: asyncio.subprocess.Process
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def status(self, path: str = "/health/ready") -> int:
        """0: nobody answers."""
        try:
            async with httpx.AsyncClient() as http:
                return (await http.get(self.url + path, timeout=10)).status_code
        except httpx.TransportError:
            return 0

    async def ready(self, seconds: float = 60.0) -> None:
        async with asyncio.timeout(seconds):
            while await self.status() != 200:
                assert self.process.returncode is None, "the gateway ended while it started"
                await asyncio.sleep(0.02)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)


@contextlib.asynccontextmanager
async def gateway(
    *arguments: str,
    port: int | None = None,
    scripted: bool = True,
    wait: bool = True,
    environment: dict[str, str] | None = None,
    quiet: bool = False,
    prefix: Sequence[str] = (),
    patience: float = 60.0,
) -> AsyncIterator[Gateway]:
    """One that is ready; killed at the end if it still lives. `prefix`: what executes it;
    `patience`: how long it may take to start, seconds.
    """
    port = port or free_port()
    program = [str(HERE / "serve_scripted.py")] if scripted else ["-m", "gateway.cli"]
    process = await asyncio.create_subprocess_exec(
        *prefix,
        sys.executable,
        *program,
        "serve",
        "--port",
        str(port),
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL if quiet else None,
        env={**os.environ, **(environment or {})},
        cwd=HERE.parents[1],
        start_new_session=True,
    )
    running = Gateway(process, port)
    try:
        if wait:
            await running.ready(patience)
        yield running
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                # The engine's processes are of the same group.
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
