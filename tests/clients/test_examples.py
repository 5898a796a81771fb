"""The programs of `examples/`, run as a reader would run them."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from clients_support import decoded
from fake_engine import FakeSynthesizer, Script
from gateway_conftest import Run, Running
from test_chat import chat_endpoint
from websockets.asyncio.client import connect

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
FRAMEWORKS = ROOT / ".venv-frameworks" / "bin" / "python"
has_frameworks = pytest.mark.skipif(
    not FRAMEWORKS.exists(), reason="scripts/setup.sh --dev installs pipecat and LiveKit"
)
PROGRAMS = sorted(path for path in EXAMPLES.iterdir() if path.suffix in (".py", ".html"))


async def example(
    running: Running,
    name: str,
    *arguments: object,
    python: str = sys.executable,
    **environment: str,
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        python,
        str(EXAMPLES / name),
        *map(str, arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "VOXGATE_URL": running.url, **environment},
    )


async def finished(process: asyncio.subprocess.Process, said: str = "") -> tuple[bytes, str]:
    out, errors = await asyncio.wait_for(process.communicate(said.encode()), 60)
    assert process.returncode == 0, errors.decode()
    return out, errors.decode()


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_examples_are_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 60


async def test_an_answer_is_spoken_into_a_file(run: Run, tmp_path: Path) -> None:
    async with run() as running, chat_endpoint() as endpoint:
        process = await example(
            running,
            "llm_to_speech.py",
            "test",
            "Why?",
            tmp_path / "answer.ogg",
            OPENAI_BASE_URL=endpoint.url,
            OPENAI_API_KEY="secret",
        )
        out, _ = await finished(process)
        said = " ".join(request.text for request in running.engine.requests)
    assert out.decode().strip() == "".join(endpoint.answer) == said
    samples, rate = decoded((tmp_path / "answer.ogg").read_bytes())
    assert 0.4 < samples.size / rate < 2.0


async def test_a_fastapi_application(run: Run, unused_tcp_port: int) -> None:
    async with run() as running:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "uvicorn", "examples.fastapi_app:app", "--port",
            str(unused_tcp_port), cwd=ROOT, env={**os.environ, "VOXGATE_URL": running.url},
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stderr is not None
        while b"Uvicorn running" not in await process.stderr.readline():
            pass
        webm, messages = b"", []
        async with connect(f"ws://127.0.0.1:{unused_tcp_port}/talk?voice=bao") as talk:
            await talk.send("Hello you. How are you?")
            while not messages or "done" not in messages[-1]:
                got = await talk.recv()
                if isinstance(got, bytes):
                    webm += got
                else:
                    messages.append(json.loads(got))
        process.terminate()
        await process.wait()
        assert {request.voice for request in running.engine.requests} == {"bao"}
    assert [each["text"] for each in messages[:-1]] == ["Hello you. ", "How are you?"]
    samples, rate = decoded(webm, "webm")
    assert samples.size / rate == pytest.approx(messages[-1]["done"] / 1000, abs=0.05)


async def test_a_telephone_hears_mu_law_in_its_time(run: Run) -> None:
    async with run() as running:
        out, errors = await finished(await example(running, "telephone.py", "Hello you."))
    assert errors.strip() == "heard: Hello you."
    assert 1_200 < len(out) < 2_400
    # Loud samples of G.711 differ from those of silence.
    assert len(set(out)) > 20


async def test_a_line_interrupts_the_telephone(run: Run) -> None:
    slow = "This takes a long time, and then even longer."
    engine = FakeSynthesizer(lambda *_: Script(samples=24_000, chunk=480, delay=0.02))
    async with run(engine) as running:
        process = await example(running, "telephone.py", slow)
        assert process.stdout is not None
        assert await process.stdout.read(160)
        _, errors = await finished(process, "And now this.\n")
    first, second = errors.splitlines()
    assert len(first) < len(slow)
    assert second == "heard: And now this."


async def test_captions_are_read_aloud_and_shown(run: Run, tmp_path: Path) -> None:
    shown, audio = tmp_path / "captions.txt", tmp_path / "speech.wav"
    async with run() as running:
        process = await example(running, "obs_captions.py", shown, audio)
        await finished(process, "First caption.\nSecond caption.\n")
        assert [r.text for r in running.engine.requests] == ["First caption.", "Second caption."]
    assert shown.read_text() == "Second caption."
    samples, _ = decoded(audio.read_bytes())
    assert np.abs(samples).max() > 0.2


@has_frameworks
async def test_a_pipecat_pipeline(run: Run, tmp_path: Path) -> None:
    async with run() as running:
        process = await example(
            running, "pipecat_pipeline.py", tmp_path / "speech.wav", python=str(FRAMEWORKS)
        )
        await finished(process, "Hello you.\nHow are you?\n")
        assert [r.text for r in running.engine.requests] == ["Hello you.", "How are you?"]
    samples, rate = decoded((tmp_path / "speech.wav").read_bytes())
    assert 0.4 < samples.size / rate < 1.5
    assert np.abs(samples).max() > 0.2


@has_frameworks
async def test_a_livekit_agent(run: Run, tmp_path: Path) -> None:
    async with run() as running:
        driver = Path(__file__).with_name("livekit_driver.py")
        speech = tmp_path / "speech.pcm"
        process = await example(
            running, str(driver), speech, "Hello you. How are you?", python=str(FRAMEWORKS)
        )
        out, _ = await finished(process)
        assert [r.text for r in running.engine.requests] == ["Hello you.", "How are you?"]
    assert out.decode().strip() == "24000"
    samples = np.frombuffer(speech.read_bytes(), "<i2")
    assert 0.4 < samples.size / 24_000 < 1.5
    assert np.abs(samples).max() > 0.2 * 32_768
