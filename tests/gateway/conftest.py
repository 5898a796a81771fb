"""A real gateway on a real port, with a scripted engine behind it."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvloop
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

from fake_engine import FakeSynthesizer

from gateway.app import Gateway, create_app
from gateway.client import VoiceClient
from gateway.server import Server, listen, make_server
from gateway.settings import Settings

settings.register_profile("voxgate", deadline=None)
settings.load_profile("voxgate")


@pytest.fixture(scope="session")
def event_loop_policy() -> uvloop.EventLoopPolicy:
    return uvloop.EventLoopPolicy()


@dataclass
class Running:
    """A gateway that answers at `url`."""

    url: str
    gateway: Gateway
    server: Server
    engine: FakeSynthesizer
    task: asyncio.Task[None]

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def client(self, **options: Any) -> VoiceClient:
        return VoiceClient(self.url, **options)

    async def quiet(self) -> None:
        """Until no session is open."""
        while self.gateway.connections or self.gateway.sessions.live:
            await asyncio.sleep(0.005)


Run = Callable[..., "contextlib.AbstractAsyncContextManager[Running]"]


@contextlib.asynccontextmanager
async def run_gateway(
    engine: FakeSynthesizer | None = None, *, ready: bool = True, **options: Any
) -> AsyncIterator[Running]:
    engine = engine or FakeSynthesizer()
    # A scripted engine says nothing of what a machine can carry.
    chosen = Settings(**{"port": 0, "capacity_share": 0.0, **options})
    app = create_app(chosen, lambda: engine)
    listener = listen(chosen)
    server = make_server(app, chosen)
    # Ctrl-C is for the test run.
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign]
    task = asyncio.create_task(server.serve(sockets=[listener]))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        while not server.started:
            await asyncio.sleep(0.001)
        gateway: Gateway = app.state.gateway
        while ready and not gateway.started:
            assert gateway.failure is None
            await asyncio.sleep(0.001)
        yield Running(url, gateway, server, engine, task)
    finally:
        server.should_exit = True
        await task
        assert engine.state == "stopped"


@pytest.fixture
def run() -> Run:
    return run_gateway
