"""`voxgate say`: text in, a file or the speakers out."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import signal
import sys
import threading
import time
from argparse import ArgumentParser, Namespace
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass

from gateway.client import Audio, Flush, GatewayError, Text, VoiceClient
from gateway.commands.console import DEFAULT_URL, CommandError, command, starting, stderr
from gateway.commands.interrupts import StoppableStart, keep_interrupts_here
from gateway.commands.local_engine import add_engine_options, engine_factory
from gateway.commands.logs import configure_logging
from gateway.commands.outputs import Output, add_output_options, choose_output
from gateway.containers import Writer
from gateway.onset import OnsetMeter
from gateway.protocol import Error, TurnDone

_READ_BYTES = 65_536


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "text",
        nargs="?",
        help="what to say; - or nothing reads standard input and speaks it as it arrives",
    )
    add_output_options(parser)
    parser.add_argument("--voice", default="default", help="see: voxgate voices")
    parser.add_argument("--language", choices=("auto", "en", "zh"), default="auto")
    parser.add_argument("--speed", type=float, default=1.0, help="1.25 is a quarter faster")
    parser.add_argument("--seed", type=int, help="the same seed speaks the same way again")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--url", default=DEFAULT_URL, help=f"the gateway; default: {DEFAULT_URL}")
    where.add_argument(
        "--local", action="store_true", help="start an engine in this process instead"
    )
    add_engine_options(parser)


@dataclass(frozen=True, slots=True)
class Spoken:
    """What came of the text. Times are seconds from the first of it; None: never."""

    first_packet: float | None
    first_audible: float | None
    audio: float
    took: float
    failed: int


def run(arguments: Namespace) -> int:
    text = read_text(arguments)
    try:
        spoken = asyncio.run(_say(arguments, text, choose_output(arguments)))
    except GatewayError as failure:
        raise CommandError(explain(failure, arguments.url)) from failure
    except asyncio.CancelledError:
        return 130
    except BrokenPipeError:
        # Whoever reads our output has had enough; nothing may be flushed into it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    stderr().print(summary(spoken))
    return 1 if spoken.failed else 0


def read_text(arguments: Namespace) -> Text:
    if arguments.text not in (None, "-"):
        return str(arguments.text)
    if arguments.text is None and sys.stdin.isatty():
        raise CommandError(f'Say what?  {command()} say "Hello, world."', code=2)
    return standard_input()


async def standard_input() -> AsyncGenerator[str, None]:
    """Text as it arrives. A thread that nobody waits for reads it: a read cannot be cancelled."""
    loop = asyncio.get_running_loop()
    parts: asyncio.Queue[bytes] = asyncio.Queue()

    def read() -> None:
        while True:
            data = os.read(sys.stdin.fileno(), _READ_BYTES)
            try:
                loop.call_soon_threadsafe(parts.put_nowait, data)
            except RuntimeError:
                return
            if not data:
                return

    threading.Thread(target=read, daemon=True).start()
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        while data := await parts.get():
            if text := decoder.decode(data):
                yield text
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as broken:
        raise CommandError(f"Standard input is not UTF-8 text: {broken}.") from broken


async def _say(arguments: Namespace, text: Text, output: Output) -> Spoken:
    async with contextlib.AsyncExitStack() as stack:
        url = arguments.url
        if arguments.local:
            url = await stack.enter_async_context(local_gateway(arguments))
        client = await stack.enter_async_context(
            VoiceClient(
                url,
                voice=arguments.voice,
                language=arguments.language,
                speed=arguments.speed,
                seed=arguments.seed,
                format=output.wire_format,
                captions=False,
                live=output.live,
                reconnect=not arguments.local,
            )
        )
        file = stack.enter_context(output.open())
        writer = output.writer(file, int(client.started.audio["pre_skip"]))
        return await speak(client, text, writer)


async def speak(client: VoiceClient, text: Text, writer: Writer) -> Spoken:
    """One turn into `writer`; errors of single pieces go to standard error."""
    began: float | None = None

    async def timed() -> AsyncIterator[str | Flush]:
        nonlocal began
        if isinstance(text, str):
            began = time.perf_counter()
            yield text
            return
        async for part in text:
            began = began or time.perf_counter()
            yield part

    meter = OnsetMeter(writer.format)
    samples: int | None = None
    failed = 0
    try:
        async for event in client.speak(timed()):
            if isinstance(event, Audio):
                meter.hear(event.payload, event.samples, event.at)
                # A player takes audio no faster than it plays.
                await asyncio.to_thread(writer.write, event.payload, event.samples)
            elif isinstance(event, TurnDone):
                samples, failed = event.samples, event.failed
            elif isinstance(event, Error):
                stderr().print(f"{event.code}: {event.message} {event.hint}", style="yellow")
    finally:
        writer.close(samples)
    now, start = time.perf_counter(), began or 0.0
    return Spoken(
        first_packet=meter.first_packet and meter.first_packet - start,
        first_audible=meter.first_audible and meter.first_audible - start,
        audio=(samples or 0) / 24_000,
        took=now - start,
        failed=failed,
    )


def summary(spoken: Spoken) -> str:
    if spoken.first_packet is None:
        return "Nothing was spoken: there is nothing to say in this text."
    parts = [f"first packet {spoken.first_packet * 1000:.0f} ms"]
    if spoken.first_audible is not None:
        parts.append(f"first audible {spoken.first_audible * 1000:.0f} ms")
    parts.append(f"{spoken.audio:.1f} s of speech in {spoken.took:.1f} s")
    return ", ".join(parts)


# -- an engine of one's own -----------------------------------------------------------------------


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


# -- what went wrong ------------------------------------------------------------------------------


def explain(failure: GatewayError, url: str) -> str:
    """The failure and what to do about it."""
    match failure.code:
        case "unreachable":
            advice = (
                f"No gateway answers at {url}. Start one in another terminal: make demo (or "
                f"{command()} serve), or speak without one: {command()} say --local ..."
            )
            return f"{advice}\n({failure.message})"
        case "starting" | "capacity" | "draining":
            return f"{failure.message} Try again in {(failure.retry_after_ms or 2000) / 1000:g} s."
        case "unknown_voice":
            return f"{failure.message} See them: {command()} voices"
        case _:
            return f"{failure.code}: {failure.message}"
