"""`voxgate chat`: talk to any OpenAI-compatible chat endpoint and hear it while it writes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import termios
import tty
from argparse import ArgumentParser, Namespace
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

from gateway.chat_completions import ChatError, stream_chat
from gateway.client import Audio, GatewayError, VoiceClient
from gateway.commands.console import CommandError, stderr
from gateway.commands.outputs import Output, speaker_output
from gateway.commands.speaking import (
    add_gateway_options,
    add_voice_options,
    explain,
    voice_client,
)
from gateway.protocol import Error, TurnCancelled

_SYSTEM = "You are heard, not read: answer in a few short spoken sentences, without markup."
PROMPT = "> "


def add_arguments(parser: ArgumentParser) -> None:
    environment = os.environ
    parser.add_argument(
        "--base-url",
        default=environment.get("OPENAI_BASE_URL"),
        help="of the chat endpoint, such as http://127.0.0.1:11434/v1; default: $OPENAI_BASE_URL",
    )
    parser.add_argument("--model", required=True, help="as the endpoint names it")
    parser.add_argument(
        "--api-key",
        default=environment.get("OPENAI_API_KEY", ""),
        help="default: $OPENAI_API_KEY",
    )
    parser.add_argument("--system", default=_SYSTEM, help="the system prompt; empty: none")
    add_voice_options(parser)
    add_gateway_options(parser)


def run(arguments: Namespace) -> int:
    if not arguments.base_url:
        raise CommandError("Which chat endpoint?  --base-url http://127.0.0.1:11434/v1", 2)
    try:
        asyncio.run(_chat(arguments, speaker_output()))
    except GatewayError as failure:
        raise CommandError(explain(failure, arguments.url)) from failure
    except asyncio.CancelledError:
        return 130
    return 0


@dataclass
class Talk:
    """What was said so far, as the endpoint is told. Of its answers only what was heard."""

    messages: list[dict[str, str]] = field(default_factory=list)

    def add(self, role: str, content: str) -> None:
        if content:
            self.messages.append({"role": role, "content": content})


async def _chat(arguments: Namespace, output: Output) -> None:
    talk = Talk()
    talk.add("system", arguments.system)
    async with voice_client(arguments, output) as client:
        stderr().print("Any key interrupts. An empty line ends.", style="dim")
        while question := (await asyncio.to_thread(_ask)).strip():
            talk.add("user", question)
            answer = stream_chat(
                arguments.base_url, arguments.model, talk.messages, arguments.api_key
            )
            try:
                talk.add("assistant", await _answer(client, answer, output))
            except ChatError as failure:
                talk.messages.pop()
                stderr().print(str(failure), style="red", markup=False)


def _ask() -> str:
    try:
        return input(PROMPT if sys.stdin.isatty() else "")
    except EOFError:
        return ""


async def _answer(client: VoiceClient, tokens: AsyncGenerator[str, None], output: Output) -> str:
    """Print and speak an answer while it comes; returns what of it was heard."""
    whole: list[str] = []

    async def shown() -> AsyncIterator[str]:
        async with contextlib.aclosing(tokens):
            async for token in tokens:
                whole.append(token)
                print(token, end="", flush=True)
                yield token

    with pressed_keys() as key:
        heard = await Speaking(client, output, key).run(shown())
    print(" …" if heard is not None else "")
    return "".join(whole) if heard is None else heard


class Speaking:
    """One turn on the speakers, until its end or a key."""

    def __init__(self, client: VoiceClient, output: Output, key: asyncio.Event) -> None:
        self._client = client
        self._output = output
        self._key = key
        self._packets: asyncio.Queue[Audio | None] = asyncio.Queue()

    async def run(self, text: AsyncIterator[str]) -> str | None:
        """What was heard until a key was pressed; None: all of it."""
        playing = asyncio.create_task(self._play())
        stopping = asyncio.create_task(self._stop(playing))
        cancelled: TurnCancelled | None = None
        try:
            async for event in self._client.speak(text):
                if isinstance(event, Audio):
                    self._packets.put_nowait(event)
                elif isinstance(event, TurnCancelled):
                    cancelled = event
                elif isinstance(event, Error):
                    stderr().print(f"{event.code}: {event.message}", style="yellow")
            self._packets.put_nowait(None)
            await asyncio.wait((playing, stopping), return_when=asyncio.FIRST_COMPLETED)
            if stopping.done() and cancelled is None:
                cancelled = await self._cancelled()
            if not playing.cancelled() and not stopping.done():
                await playing
        finally:
            for task in (playing, stopping):
                task.cancel()
            await asyncio.gather(playing, stopping, return_exceptions=True)
        return None if cancelled is None else cancelled.spoken

    async def _stop(self, playing: asyncio.Task[None]) -> None:
        await self._key.wait()
        playing.cancel()
        await self._client.cancel()

    async def _cancelled(self) -> TurnCancelled | None:
        """The answer to a cancel after the turn was done; None if it was heard to its end."""
        while True:
            event = await self._client.receive()
            if isinstance(event, TurnCancelled):
                return event
            if isinstance(event, Error) and event.request == "turn.cancel":
                return None

    async def _play(self) -> None:
        first = await self._packets.get()
        if first is None:
            return
        # Leaving this block by a cancellation silences the player at once.
        with self._output.open() as file:
            writer = self._output.writer(file, int(self._client.started.audio["pre_skip"]))
            packet: Audio | None = first
            while packet is not None:
                await asyncio.to_thread(writer.write, packet.payload, packet.samples)
                packet = await self._packets.get()
            await asyncio.to_thread(writer.close)


@contextlib.contextmanager
def pressed_keys() -> Iterator[asyncio.Event]:
    """Set once a key is pressed, where there is a keyboard."""
    pressed = asyncio.Event()
    if not sys.stdin.isatty():
        yield pressed
        return
    keyboard, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before: list[Any] = termios.tcgetattr(keyboard)

    def read() -> None:
        os.read(keyboard, 1024)
        pressed.set()

    tty.setcbreak(keyboard)
    loop.add_reader(keyboard, read)
    try:
        yield pressed
    finally:
        loop.remove_reader(keyboard)
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
