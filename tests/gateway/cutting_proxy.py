"""A TCP proxy that breaks connections off after so many bytes, as networks do."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Iterator


def reset(writer: asyncio.StreamWriter) -> None:
    """Gone at once, with nothing of what is buffered delivered."""
    raw = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class CuttingProxy:
    """Each connection carries as many bytes, both ways together, as the next of `budgets` says;
    after the last one they live on.
    """

    def __init__(self, port: int, budgets: Iterator[int]) -> None:
        self._port = port
        self._budgets = budgets
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections = 0
        self.cuts = 0
        self.port = 0

    async def _serve(self, down: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        self.connections += 1
        left = next(self._budgets, None)
        up, out = await asyncio.open_connection("127.0.0.1", self._port)

        async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal left
            while data := await reader.read(4096):
                if left is not None:
                    data, left = data[:left], left - len(data)
                writer.write(data)
                if left is not None and left <= 0:
                    self.cuts += 1
                    await asyncio.sleep(0)
                    reset(out)
                    reset(back)
                    return
                await writer.drain()
            writer.close()

        with contextlib.suppress(OSError):
            await asyncio.gather(copy(down, out), copy(up, back))
        reset(out)
        reset(back)

    async def _accept(self, down: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(down, back)
        finally:
            self._tasks.discard(task)

    @contextlib.asynccontextmanager
    async def run(self) -> AsyncIterator[str]:
        """The URL clients connect to."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield f"http://127.0.0.1:{self.port}"
        finally:
            server.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
