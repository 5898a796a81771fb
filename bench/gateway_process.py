"""A gateway of one's own to measure: started on a free port, waited for, stopped."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import tempfile
from contextlib import suppress
from types import TracebackType
from typing import Self

import httpx


class GatewayError(RuntimeError):
    """The gateway did not become ready; the message says what it printed."""


def free_port() -> int:
    """A TCP port nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class GatewayProcess:
    """`voxgate serve` while entered. Raises `GatewayError` when it does not become ready.

    It lets everybody in, so that what happens beyond its capacity is to be seen, unless
    `VOXGATE_CAPACITY_SHARE` says otherwise.
    """

    command = (sys.executable, "-m", "gateway.cli", "serve")

    def __init__(self, arguments: list[str] | None = None, *, ready_seconds: float = 300.0) -> None:
        self._arguments = arguments or []
        self._ready_seconds = ready_seconds
        self.port = free_port()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self._process.pid

    async def __aenter__(self) -> Self:
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed when the process ends)
        self._process = await asyncio.create_subprocess_exec(
            *self.command,
            "--port",
            str(self.port),
            *self._arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
            env={"VOXGATE_CAPACITY_SHARE": "0", **os.environ},
        )
        try:
            await self._wait_until_ready()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stop()

    async def _wait_until_ready(self) -> None:
        try:
            async with asyncio.timeout(self._ready_seconds), httpx.AsyncClient() as http:
                while self._process.returncode is None:
                    with suppress(httpx.HTTPError):
                        ready = await http.get(f"{self.url}/health/ready", timeout=30)
                        if ready.status_code == 200:
                            return
                    await asyncio.sleep(0.25)
        except TimeoutError:
            raise GatewayError(
                f"the gateway was not ready after {self._ready_seconds:g} s:\n{self._tail()}"
            ) from None
        raise GatewayError(f"the gateway ended before it was ready:\n{self._tail()}")

    async def _stop(self) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.terminate()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), 40)
        # Whatever of its process group is left, an engine that hangs among it, ends here.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        self._log.close()

    def _tail(self) -> str:
        self._log.seek(0)
        return self._log.read()[-3000:]
