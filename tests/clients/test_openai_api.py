"""OpenAI's own library, pointed at the gateway by its base URL."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest
from clients_support import decoded
from fake_engine import FakeSynthesizer, Script
from gateway_conftest import Run, Running

from engine.api import SpeechError, Voice
from gateway.client import Audio
from gateway.http.openai import aliases

TEXT = "Hello there. How are you today?"


def client(running: Running, **options: Any) -> openai.AsyncOpenAI:
    options = {"max_retries": 0, **options}
    return openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key="none", **options)


async def spoken(running: Running, **wishes: Any) -> bytes:
    wishes = {"model": "tts-1", "voice": "alloy", "input": TEXT, **wishes}
    return (await client(running).audio.speech.create(**wishes)).content


@pytest.mark.parametrize(
    ("format", "container", "rate"),
    [
        ("mp3", "mp3", 24_000),
        ("opus", "ogg", 48_000),
        ("aac", "aac", 24_000),
        ("flac", "flac", 24_000),
        ("wav", "wav", 24_000),
    ],
)
async def test_every_format_is_what_it_says(
    run: Run, format: Any, container: str, rate: int
) -> None:
    async with run() as running:
        samples, heard_rate = decoded(await spoken(running, response_format=format), container)
        bare = np.frombuffer(await spoken(running, response_format="pcm"), "<i2")
    assert heard_rate == rate
    # Encoders pad: MP3 and AAC by up to three frames.
    assert 0 <= samples.size / rate - bare.size / 24_000 < 0.2
    assert np.abs(samples).max() > 0.2


async def test_pcm_is_bare_and_the_default_is_mp3(run: Run) -> None:
    async with run() as running:
        bare = await spoken(running, response_format="pcm")
        assert decoded(await spoken(running), "mp3")[1] == 24_000
        reference = b"".join([payload async for payload in _by_socket(running)])
    # The engine's pitch tells its requests apart, so only the length is the same.
    assert len(bare) == len(reference)
    assert bare[:4] != b"RIFF"


async def _by_socket(running: Running) -> AsyncIterator[bytes]:
    async with running.client(format="pcm_s16le") as socket:
        async for event in socket.speak(TEXT):
            if isinstance(event, Audio):
                yield event.payload


async def test_audio_streams_from_the_first_packet(run: Run) -> None:
    more = asyncio.Event()
    engine = FakeSynthesizer(lambda _, number: Script(hold=more if number else None))
    async with run(engine) as running:
        streaming = client(running).audio.speech.with_streaming_response
        async with streaming.create(
            model="tts-1", voice="ann", input=TEXT, response_format="pcm"
        ) as response:
            assert response.headers["content-type"] == "audio/pcm"
            parts = response.iter_bytes()
            first = await anext(parts)
            assert first
            # The second piece is not even begun.
            more.set()
            rest = [part async for part in parts]
        assert rest


async def test_to_a_file_and_by_the_sync_client(run: Run, tmp_path: Path) -> None:
    async with run() as running:

        def save() -> None:
            sync = openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0)
            with sync.audio.speech.with_streaming_response.create(
                model="gpt-4o-mini-tts", voice="nova", input=TEXT, response_format="wav"
            ) as response:
                response.stream_to_file(tmp_path / "speech.wav")

        await asyncio.to_thread(save)
    samples, rate = decoded((tmp_path / "speech.wav").read_bytes())
    assert rate == 24_000
    assert samples.size > 9_000


async def test_to_a_player_while_it_is_made(run: Run) -> None:
    more = asyncio.Event()
    engine = FakeSynthesizer(lambda _, number: Script(hold=more if number else None))
    async with run(engine) as running:
        player = await asyncio.create_subprocess_exec(
            "cat", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert player.stdin is not None
        assert player.stdout is not None
        async with client(running).audio.speech.with_streaming_response.create(
            model="tts-1", voice="ann", input=TEXT, response_format="wav"
        ) as response:
            async for part in response.iter_bytes(960):
                player.stdin.write(part)
                if not more.is_set():
                    # It plays the first sentence; the second is not even begun.
                    assert (await player.stdout.readexactly(960))[:4] == b"RIFF"
                    more.set()
        player.stdin.close()
        assert len(await player.stdout.read()) > 20_000
        await player.wait()


async def test_leaving_the_stream_frees_the_engine(run: Run) -> None:
    engine = FakeSynthesizer(lambda *_: Script(samples=2_400_000, delay=0.05))
    async with run(engine) as running:
        async with client(running).audio.speech.with_streaming_response.create(
            model="tts-1", voice="ann", input=TEXT
        ) as response:
            await anext(response.iter_bytes())
            assert engine.running == 1
        while engine.running:
            await asyncio.sleep(0.001)
        assert engine.closed == [0]
        await running.quiet()


async def test_leaving_before_the_first_sound_frees_the_engine(run: Run) -> None:
    engine = FakeSynthesizer(lambda *_: Script(hold=asyncio.Event()))
    async with run(engine) as running:
        asked = asyncio.create_task(spoken(running))
        while not engine.running:
            await asyncio.sleep(0.001)
        asked.cancel()
        while engine.running:
            await asyncio.sleep(0.001)
        assert engine.closed == [0]
        await running.quiet()


async def test_server_sent_events(run: Run) -> None:
    async with run() as running:
        async with client(running).audio.speech.with_streaming_response.create(
            model="tts-1", voice="ann", input=TEXT, stream_format="sse", response_format="pcm"
        ) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            events = [
                json.loads(line.removeprefix("data: "))
                async for line in response.iter_lines()
                if line
            ]
        bare = await spoken(running, response_format="pcm")
    *deltas, done = events
    assert {event["type"] for event in deltas} == {"speech.audio.delta"}
    assert len(b"".join(base64.b64decode(event["audio"]) for event in deltas)) == len(bare)
    assert done["type"] == "speech.audio.done"
    usage = done["usage"]
    assert usage["input_tokens"] == len(TEXT)
    assert usage["output_tokens"] == -(-len(bare) // 2 // 512)
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]


# -- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wishes", "code", "param"),
    [
        ({"voice": "nobody"}, "voice_not_found", "voice"),
        ({"voice": {"id": "voice_1234"}}, "voice_not_found", "voice"),
        ({"input": ""}, "invalid_value", "input"),
        ({"input": "..."}, "empty_string", None),
        ({"input": "a" * 20_001}, "string_above_max_length", "input"),
        ({"response_format": "midi"}, "invalid_value", "response_format"),
        ({"speed": 4.5}, "invalid_value", "speed"),
        ({"speed": 3.0}, "invalid_value", "speed"),
        ({"stream_format": "smoke"}, "invalid_value", "stream_format"),
        ({"instructions": "Whisper."}, "unsupported_parameter", "instructions"),
        ({"model": "gpt-9"}, "model_not_found", "model"),
        ({"voice": 5}, "invalid_value", "voice"),
        ({"extra_body": {"lang_code": "z"}}, "unknown_parameter", "lang_code"),
        ({"extra_body": {"input": 5}}, "invalid_value", "input"),
        ({"extra_body": {"speed": "fast"}}, "invalid_value", "speed"),
        ({"extra_body": {"instructions": 5}}, "invalid_value", "instructions"),
    ],
)
async def test_what_cannot_be_honoured_is_refused(
    run: Run, wishes: dict[str, Any], code: str, param: str | None
) -> None:
    async with run() as running:
        with pytest.raises((openai.BadRequestError, openai.NotFoundError)) as refused:
            await spoken(running, **wishes)
        assert not running.engine.requests
    assert (refused.value.code, refused.value.param) == (code, param)
    assert refused.value.type == "invalid_request_error"
    assert refused.value.message


async def test_bodies_that_are_no_json_are_refused(run: Run) -> None:
    async with run() as running, httpx.AsyncClient(base_url=running.url) as http:
        url, body = "/v1/audio/speech", b'{"model": "tts-1", "input": "Hi."}'
        for answer in (
            await http.post(url, data={"model": "tts-1", "input": "Hi."}),
            await http.post(url, files={"input": b"Hi."}),
            await http.post(url, content=b"\xff{}"),
            await http.post(url, json=[]),
            await http.post(url),
        ):
            assert answer.status_code == 400
            assert answer.json()["error"]["type"] == "invalid_request_error"
            assert answer.json()["error"]["message"]
        for kind in ({}, {"content-type": "text/plain"}):
            assert (await http.post(url, content=body, headers=kind)).status_code == 200


async def test_a_full_server_says_when_to_come_back(run: Run) -> None:
    async with run(max_sessions=1) as running:
        async with running.client():
            with pytest.raises(openai.InternalServerError) as refused:
                await spoken(running)
        assert refused.value.status_code == 503
        assert refused.value.response.headers["retry-after"] == "2"
        # The library comes back by itself.
        assert decoded(await spoken(running), "mp3")


async def test_one_client_with_too_many_requests(run: Run) -> None:
    async with run(max_sessions_per_client=1) as running:
        async with running.client():
            with pytest.raises(openai.RateLimitError) as refused:
                await spoken(running)
    assert refused.value.code == "rate_limit_exceeded"


async def test_an_engine_that_fails_at_once_is_an_error(run: Run) -> None:
    engine = FakeSynthesizer(
        lambda *_: Script(fail_after=0, error=SpeechError("unpronounceable", "No."))
    )
    async with run(engine) as running:
        with pytest.raises(openai.BadRequestError) as refused:
            await spoken(running)
    assert refused.value.code == "unpronounceable"


async def test_a_block_never_closed_does_not_fail_the_request(run: Run) -> None:
    async with run() as running:
        whole = await spoken(running, response_format="pcm")
        heard = await spoken(running, response_format="pcm", input=f"{TEXT} <think>So")
    assert len(heard) == len(whole) > 0


async def test_an_engine_that_fails_later_breaks_the_stream_off(run: Run) -> None:
    def script(_: object, number: int) -> Script:
        return Script(fail_after=0 if number % 2 else None, error=SpeechError("runaway", "No end."))

    async with run(FakeSynthesizer(script)) as running:
        with pytest.raises(openai.APIConnectionError):
            await spoken(running, response_format="pcm")
        async with client(running).audio.speech.with_streaming_response.create(
            model="tts-1", voice="ann", input=TEXT, stream_format="sse"
        ) as response:
            lines = [line async for line in response.iter_lines() if line]
        assert json.loads(lines[-1].removeprefix("data: "))["type"] == "error"


# -- what there is --------------------------------------------------------------------------------


async def test_models_are_listed_and_all_work(run: Run) -> None:
    async with run() as running:
        names = [model.id async for model in client(running).models.list()]
        assert {"voxgate", "tts-1"} <= set(names)
        for name in names:
            assert (await client(running).models.retrieve(name)).object == "model"
            assert await spoken(running, model=name, response_format="pcm")
        with pytest.raises(openai.NotFoundError):
            await client(running).models.retrieve("gpt-9")


async def test_voices_are_listed_and_all_speak(run: Run) -> None:
    async with run() as running, httpx.AsyncClient() as http:
        listed = (await http.get(f"{running.url}/v1/audio/voices")).json()["voices"]
        for voice in listed:
            assert voice["name"]
            assert await spoken(running, voice=voice["id"], response_format="pcm")
        asked = {request.voice for request in running.engine.requests}
    assert {"ann", "bao", "default"} == asked
    assert {"alloy", "nova", "onyx"} <= {voice["id"] for voice in listed}


def test_aliases_go_by_gender_and_never_hide_a_voice() -> None:
    voices = [
        Voice("nova", "Nova", ("en",), "female"),
        Voice("rex", "Rex", ("en",), "male"),
    ]
    named = aliases(voices)
    assert "nova" not in named
    assert named["shimmer"] == "nova"
    assert named["onyx"] == named["echo"] == "rex"
    assert named["alloy"] == "default"


@pytest.mark.engine
def test_the_real_voice_speaks(spoken_url: str) -> None:
    sync = openai.OpenAI(base_url=f"{spoken_url}/v1", api_key="none")
    speech = sync.audio.speech.create(model="tts-1", voice="nova", input=TEXT)
    samples, rate = decoded(speech.content, "mp3")
    assert 1.0 < samples.size / rate < 6.0
    assert np.sqrt(np.mean(samples**2)) > 0.01
