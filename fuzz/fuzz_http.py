"""The HTTP and WebSocket protocols of the port without a socket: bytes in, bytes out."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from gateway.limits import GuardedHttp, GuardedStream, guarded_http
from gateway.settings import Settings


class FakeTransport(asyncio.Transport):
    """Takes everything, and remembers."""

    def __init__(self) -> None:
        super().__init__()
        self.out = bytearray()
        self.closed = False
        self.protocol: Any = None

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)}.get(name, default)

    def write(self, data: Any) -> None:
        self.out += data

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def get_protocol(self) -> Any:
        return self.protocol


async def _application(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (await receive())["type"] != "websocket.disconnect":
            pass
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})


@functools.cache
def _server() -> tuple[asyncio.AbstractEventLoop, uvicorn.Config, type[GuardedHttp]]:
    loop = asyncio.new_event_loop()
    config = uvicorn.Config(
        _application,
        http=guarded_http(Settings(), 10),
        ws=GuardedStream,
        ws_max_size=4096,
        ws_per_message_deflate=False,
        log_config=None,
        log_level="critical",
        access_log=False,
        lifespan="off",
    )
    config.load()
    kind = config.http_protocol_class
    assert isinstance(kind, type)
    assert issubclass(kind, GuardedHttp)
    return loop, config, kind


def feed(data: bytes, cut: int) -> None:
    """Raises what the protocols let through."""
    loop, config, kind = _server()
    at = len(data) * cut // 256

    async def run() -> None:
        state = ServerState()
        transport = FakeTransport()
        protocol = kind(config=config, server_state=state, app_state={}, _loop=loop)
        transport.protocol = protocol
        protocol.connection_made(transport)
        for part in (data[:at], data[at:]):
            if part and not transport.closed:
                transport.protocol.data_received(part)
                await asyncio.sleep(0)
        transport.protocol.connection_lost(None)
        for _ in range(6):
            await asyncio.sleep(0)
        left = list(state.tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        assert not state.connections

    loop.run_until_complete(run())
