"""`voxgate say`: text in, a file or the speakers out."""

from __future__ import annotations

import asyncio
import codecs
import os
import sys
import threading
import time
from argparse import ArgumentParser, Namespace
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass

from gateway.client import Audio, Flush, GatewayError, Text, VoiceClient
from gateway.commands.console import CommandError, command, stderr
from gateway.commands.outputs import Output, add_output_options, choose_output
from gateway.commands.speaking import (
    add_gateway_options,
    add_voice_options,
    explain,
    voice_client,
)
from gateway.containers import Writer
from gateway.onset import OnsetMeter
from gateway.protocol import Error, TurnCancelled, TurnDone

_READ_BYTES = 65_536


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "text",
        nargs="?",
        help="what to say; - or nothing reads standard input and speaks it as it arrives",
    )
    add_output_options(parser)
    add_voice_options(parser)
    parser.add_argument("--seed", type=int, help="the same seed speaks the same way again")
    add_gateway_options(parser)


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
        text = str(arguments.text)
        try:
            text.encode()
        except UnicodeEncodeError as broken:
            raise CommandError(f"The text is not UTF-8: {broken}.", 2) from broken
        return text
    # Nobody's: it was closed by whoever called.
    if sys.stdin is None:
        raise CommandError(f'There is no standard input; {command()} say "Hello, world."', 2)
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
    wishes = {"seed": arguments.seed, "captions": False, "live": output.live}
    async with voice_client(arguments, output, **wishes) as client:
        with output.open() as file:
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
            elif isinstance(event, TurnCancelled):
                # Nobody asked for that here: the gateway stops.
                samples, failed = event.sent_samples, failed + 1
                stderr().print(
                    f"The gateway stopped before the end. Not said: {event.unspoken.strip()}",
                    style="yellow",
                    markup=False,
                )
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
