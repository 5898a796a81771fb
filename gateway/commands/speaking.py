"""What the commands that speak have in common: their options, their session, what went wrong."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from argparse import ArgumentParser, Namespace
from collections.abc import AsyncIterator
from typing import Any

from gateway.client import GatewayError, VoiceClient
from gateway.commands.console import DEFAULT_URL, command, starting, stderr
from gateway.commands.interrupts import StoppableStart, keep_interrupts_here
from gateway.commands.local_engine import add_engine_options, engine_factory, engine_installed
from gateway.commands.logs import configure_logging
from gateway.commands.outputs import Output


def add_voice_options(parser: ArgumentParser) -> None:
    parser.add_argument("--voice", default="default", help="see: voxgate voices")
    parser.add_argument("--language", choices=("auto", "en", "zh"), default="auto")
    parser.add_argument("--speed", type=float, default=1.0, help="1.25 is a quarter faster")


def add_gateway_options(parser: ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--url", default=DEFAULT_URL, help=f"the gateway; default: {DEFAULT_URL}")
    where.add_argument(
        "--local", action="store_true", help="start an engine in this process instead"
    )
    add_engine_options(parser)


@contextlib.asynccontextmanager
async def voice_client(
    arguments: Namespace, output: Output, **wishes: Any
) -> AsyncIterator[VoiceClient]:
    """A session that speaks as the options say; `wishes`: more for `VoiceClient`.

    Raises `GatewayError`.
    """
    async with contextlib.AsyncExitStack() as stack:
        url = arguments.url
        if arguments.local:
            url = await stack.enter_async_context(local_gateway(arguments))
        client = VoiceClient(
            url,
            voice=arguments.voice,
            language=arguments.language,
            speed=arguments.speed,
            format=output.wire_format,
            reconnect=not arguments.local,
            **wishes,
        )
        yield await stack.enter_async_context(client)


@contextlib.asynccontextmanager
async def local_gateway(arguments: Namespace) -> AsyncIterator[str]:
    """A gateway in this process on a free port; its URL once it spoke."""
    factory = engine_factory(arguments)
    from gateway.app import create_app
    from gateway.server import listen, make_server
    from gateway.settings import Settings

    settings = Settings(port=0)
    loop = asyncio.get_running_loop()
    app = create_app(settings, lambda: StoppableStart(factory))
    started: asyncio.Queue[Exception | None] = asyncio.Queue()
    configure_logging("error")
    keep_interrupts_here()
    with listen(settings) as listener:
        app.state.gateway.on_started = started.put_nowait
        server = make_server(app, settings)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            # The server took the signals for itself; here an interrupt means silence, now.
            await asyncio.sleep(0)
            this = asyncio.current_task()
            assert this is not None
            loop.add_signal_handler(signal.SIGINT, this.cancel)
            with starting(stderr()) as report:
                app.state.gateway.progress = report
                failure = await started.get()
            if failure is not None:
                raise failure
            yield f"ws://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving


def explain(failure: GatewayError, url: str) -> str:
    """The failure and what to do about it."""
    match failure.code:
        case "unreachable":
            advice = f"No gateway answers at {url}. "
            if engine_installed():
                advice += (
                    f"Start one in another terminal: make demo (or {command()} serve), or speak "
                    f"without one: {command()} say --local ..."
                )
            else:
                advice += f"Start one there, or name another: {command()} say --url ws://HOST:8080"
            return f"{advice}\n({failure.message})"
        case "starting" | "capacity" | "draining":
            return f"{failure.message} Try again in {(failure.retry_after_ms or 2000) / 1000:g} s."
        case "unknown_voice":
            return f"{failure.message} See them: {command()} voices"
        case _:
            return f"{failure.code}: {failure.message}"
