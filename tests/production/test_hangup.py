"""SIGHUP means two things: read again, and that the terminal is gone."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import sys

from processes import HERE, Gateway, free_port, gateway


async def test_a_signal_reads_again_and_a_closed_terminal_ends_it() -> None:
    port = free_port()
    pid, terminal = pty.fork()
    if pid == 0:
        arguments = [str(HERE / "serve_scripted.py"), "serve", "--port", str(port)]
        os.execv(sys.executable, [sys.executable, *arguments])
    asyncio.get_running_loop().add_reader(terminal, lambda: os.read(terminal, 65536))
    server = Gateway(None, port)  # type: ignore[arg-type]
    try:
        async with asyncio.timeout(60):
            while await server.status() != 200:
                await asyncio.sleep(0.05)
        os.kill(pid, signal.SIGHUP)
        await asyncio.sleep(0.3)
        assert await server.status() == 200
        asyncio.get_running_loop().remove_reader(terminal)
        os.close(terminal)
        async with asyncio.timeout(30):
            while os.waitpid(pid, os.WNOHANG) == (0, 0):  # noqa: ASYNC222 - it does not wait
                await asyncio.sleep(0.05)
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise


async def test_without_a_terminal_it_only_reads_again() -> None:
    async with gateway() as server:
        server.signal(signal.SIGHUP)
        await asyncio.sleep(0.3)
        assert await server.status() == 200
        server.signal(signal.SIGTERM)
        assert await server.process.wait() == 0
