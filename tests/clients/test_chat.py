"""`voxgate chat` on a terminal, with an endpoint that writes slowly and a player that listens."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import pty
import socket
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from fake_engine import FakeSynthesizer, Script
from gateway_conftest import Run, Running
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from engine.api import SAMPLE_RATE, SpeechError
from gateway.chat_completions import ChatError, stream_chat
from gateway.cli import main
from gateway.commands.chat import Speaking, pressed_keys
from gateway.commands.outputs import Output


class ChatEndpoint:
    """Answers in tokens; `hold` keeps it from writing the rest."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.answer = ["Well, ", "that is ", "a question. ", "And here ", "is the rest."]
        self.hold: asyncio.Event | None = None
        self.url = ""

    async def complete(self, request: Request) -> Response:
        self.asked.append(await request.json())
        if request.headers.get("authorization") != "Bearer secret":
            return JSONResponse({"error": {"message": "Incorrect API key."}}, 401)
        return StreamingResponse(self._tokens(), media_type="text/event-stream")

    async def _tokens(self) -> AsyncIterator[str]:
        yield ": a comment\n\n"
        yield 'data: {"choices": [{"delta": {"role": "assistant"}}]}\n\n'
        for number, token in enumerate(self.answer):
            if number == 3 and self.hold is not None:
                await self.hold.wait()
            yield f"data: {json.dumps({'choices': [{'delta': {'content': token}}]})}\n\n"
        yield "data: [DONE]\n\n"


@contextlib.asynccontextmanager
async def chat_endpoint() -> AsyncIterator[ChatEndpoint]:
    endpoint = ChatEndpoint()
    app = Starlette(routes=[Route("/v1/chat/completions", endpoint.complete, methods=["POST"])])
    server = uvicorn.Server(uvicorn.Config(app, log_config=None))
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign,assignment]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint.url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        task = asyncio.create_task(server.serve(sockets=[listener]))
        yield endpoint
        if endpoint.hold is not None:
            endpoint.hold.set()
        server.should_exit = True
        await task


class Terminal:
    """The command on a terminal of its own."""

    def __init__(self, process: asyncio.subprocess.Process, keyboard: int) -> None:
        self.process = process
        self._keyboard = keyboard
        self._shown = ""
        self._more = asyncio.Event()
        asyncio.get_running_loop().add_reader(keyboard, self._read)

    def _read(self) -> None:
        try:
            self._shown += os.read(self._keyboard, 4096).decode(errors="replace")
        except OSError:
            asyncio.get_running_loop().remove_reader(self._keyboard)
        self._more.set()

    async def until(self, text: str) -> str:
        async with asyncio.timeout(30):
            while text not in self._shown:
                self._more.clear()
                await self._more.wait()
        before, _, self._shown = self._shown.partition(text)
        return before

    def press(self, keys: str) -> None:
        os.write(self._keyboard, keys.encode())


@contextlib.asynccontextmanager
async def chatting(
    running: Running, endpoint: ChatEndpoint, folder: Path, *arguments: str
) -> AsyncIterator[Terminal]:
    player = folder / "aplay"
    player.write_text(f"#!/bin/sh\nexec cat >> {folder / 'heard'}\n")
    player.chmod(0o755)
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PATH": f"{folder}:/bin:/usr/bin", "OPENAI_API_KEY": "secret"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway.cli", "chat", "--url", running.url,
        "--base-url", endpoint.url, "--model", "test", *arguments,
        stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    terminal = Terminal(process, ours)
    try:
        await terminal.until("> ")
        yield terminal
        terminal.press("\n")
        assert await asyncio.wait_for(process.wait(), 30) == 0
    finally:
        asyncio.get_running_loop().remove_reader(ours)
        if process.returncode is None:
            process.kill()
        os.close(ours)


async def test_answers_are_shown_and_heard_while_they_are_written(run: Run, tmp_path: Path) -> None:
    async with run() as running, chat_endpoint() as endpoint:
        endpoint.hold = asyncio.Event()
        async with chatting(running, endpoint, tmp_path, "--system", "Be brief.") as terminal:
            terminal.press("Why?\n")
            await terminal.until("a question. ")
            # The first sentence is spoken although the second is not written.
            while not running.engine.requests:
                await asyncio.sleep(0.01)
            assert running.engine.requests[0].text == "Well, that is a question."
            endpoint.hold.set()
            await terminal.until("is the rest.")
            await terminal.until("> ")
            terminal.press("Really?\n")
            await terminal.until("> ")
        said = endpoint.asked[1]["messages"]
        assert [each["role"] for each in said] == ["system", "user", "assistant", "user"]
        assert said[2]["content"] == "".join(endpoint.answer)
        assert endpoint.asked[0]["stream"] is True
    seconds = (tmp_path / "heard").stat().st_size / 2 / SAMPLE_RATE
    assert seconds > 1.5


async def test_a_key_interrupts_and_what_was_heard_is_remembered(run: Run, tmp_path: Path) -> None:
    # As slow as a listener: the piece is not over when the key is pressed.
    engine = FakeSynthesizer(lambda *_: Script(samples=48_000, chunk=1_200, delay=0.05))
    async with run(engine) as running, chat_endpoint() as endpoint:
        endpoint.hold = asyncio.Event()
        async with chatting(running, endpoint, tmp_path) as terminal:
            terminal.press("Why?\n")
            while not engine.running:
                await asyncio.sleep(0.01)
            terminal.press(" ")
            await terminal.until("…")
            await terminal.until("> ")
            assert not engine.running
            endpoint.hold.set()
            engine.script = lambda *_: Script()
            terminal.press("Go on.\n")
            await terminal.until("> ")
        heard = [each for each in endpoint.asked[1]["messages"] if each["role"] == "assistant"]
        assert len("".join(each["content"] for each in heard)) < len("Well, that is a question. ")


async def test_what_the_endpoint_refuses_is_shown(run: Run, tmp_path: Path) -> None:
    async with run() as running, chat_endpoint() as endpoint:
        async with chatting(running, endpoint, tmp_path, "--api-key", "wrong") as terminal:
            terminal.press("Why?\n")
            await terminal.until("401 Incorrect API key.")
            await terminal.until("> ")


async def test_failures_of_an_endpoint(unused_tcp_port: int) -> None:
    with pytest.raises(ChatError, match="chat/completions"):
        async for _ in stream_chat(f"http://127.0.0.1:{unused_tcp_port}/v1", "m", []):
            pass
    async with chat_endpoint() as endpoint:
        tokens = [t async for t in stream_chat(endpoint.url + "/", "m", [], "secret")]
        assert tokens == endpoint.answer
        endpoint.answer = []
        async with httpx.AsyncClient() as http:
            assert (await http.post(f"{endpoint.url}/chat/completions", json={})).status_code == 401


class TestSpeaking:
    """The turn on the speakers, without a terminal."""

    async def test_all_is_heard(self, run: Run) -> None:
        heard = Heard()
        async with run() as running, running.client(format="pcm_s16le") as client:
            speaking = Speaking(client, heard.output, asyncio.Event())
            assert await speaking.run(words("Hello you. ", "Goodbye.")) is None
            assert await speaking.run(words()) is None
        assert len(heard.file.getvalue()) > 20_000
        assert not heard.cut

    async def test_a_key_while_it_is_made(self, run: Run) -> None:
        engine = FakeSynthesizer(lambda *_: Script(samples=48_000, chunk=1_200, delay=0.05))
        heard, key = Heard(), asyncio.Event()
        async with run(engine) as running, running.client(format="pcm_s16le") as client:
            turn = asyncio.create_task(
                Speaking(client, heard.output, key).run(words("Hello you, and on and on."))
            )
            while not heard.file.getvalue():
                await asyncio.sleep(0.01)
            key.set()
            said = await turn
            assert said is not None
            assert len(said) < len("Hello you, and on and on.")
            assert not engine.running
        assert heard.cut

    async def test_a_key_while_the_player_has_the_rest(self, run: Run) -> None:
        heard, key = Heard(), asyncio.Event()
        heard.hold = threading.Event()
        async with run() as running, running.client(format="pcm_s16le") as client:
            turn = asyncio.create_task(Speaking(client, heard.output, key).run(words("Hello you.")))
            while not running.engine.finished:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            key.set()
            assert await turn is not None
            heard.hold.set()
        assert heard.cut

    async def test_errors_of_pieces_are_shown(
        self, run: Run, capsys: pytest.CaptureFixture[str]
    ) -> None:
        engine = FakeSynthesizer(
            lambda *_: Script(fail_after=0, error=SpeechError("unpronounceable", "No."))
        )
        async with run(engine) as running, running.client(format="pcm_s16le") as client:
            await Speaking(client, Heard().output, asyncio.Event()).run(words("Hello you."))
        assert "unpronounceable" in capsys.readouterr().err


async def test_keys_are_noticed_where_there_is_a_keyboard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "r") as keyboard:
        monkeypatch.setattr("sys.stdin", keyboard)
        with pressed_keys() as key:
            assert not key.is_set()
            os.write(ours, b" ")
            await asyncio.wait_for(key.wait(), 10)
    os.close(ours)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pressed_keys() as key:
        assert not key.is_set()


async def words(*parts: str) -> AsyncIterator[str]:
    for part in parts:
        yield part


class Heard:
    """An output into memory. `cut`: it was left by an interruption."""

    def __init__(self) -> None:
        self.file = io.BytesIO()
        self.cut = False
        self.hold: threading.Event | None = None
        self.output = Output("raw", True, self._open)

    @contextlib.contextmanager
    def _open(self) -> Iterator[Any]:
        try:
            yield self
        except asyncio.CancelledError:
            self.cut = True
            raise

    def write(self, data: bytes) -> int:
        if self.hold is not None:
            self.hold.wait(10)
        return self.file.write(data)

    def flush(self) -> None:
        pass


def test_without_an_endpoint_it_asks_for_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    assert main(["chat", "--model", "m"]) == 2
    assert "--base-url" in capsys.readouterr().err
