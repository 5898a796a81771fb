"""Keys, as the libraries of the other APIs send them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from elevenlabs.client import AsyncElevenLabs, ElevenLabs
from elevenlabs.core import ApiError
from gateway_conftest import Run, Running
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from gateway.keys import KeyRing, make_key, write_keys


def ring(folder: Path, **options: Any) -> tuple[str, str, dict[str, Any]]:
    """Two keys, and the settings that let them in."""
    (ann, hers), (bob, his) = make_key("ann", **options), make_key("bob")
    path = folder / "keys.json"
    write_keys(path, KeyRing([hers, his]))
    return ann, bob, {"keys_file": str(path)}


async def by_openai(running: Running, key: str) -> bytes:
    client = openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key=key, max_retries=0)
    spoken = await client.audio.speech.create(
        model="tts-1", voice="alloy", input="Hello you.", response_format="pcm"
    )
    return spoken.content


async def by_elevenlabs(running: Running, key: str) -> bytes:
    client = AsyncElevenLabs(base_url=running.url, api_key=key)
    options: Any = {"max_retries": 0}
    parts = client.text_to_speech.convert(
        "ann", text="Hello you.", output_format="pcm_24000", request_options=options
    )
    return b"".join([part async for part in parts])


async def test_a_key_opens_every_api(run: Run, tmp_path: Path) -> None:
    ann, _, settings = ring(tmp_path)
    async with run(**settings) as running:
        assert await by_openai(running, ann)
        assert await by_elevenlabs(running, ann)
        with pytest.raises(openai.AuthenticationError) as refused:
            await by_openai(running, "wrong")
        assert refused.value.body
        with pytest.raises(ApiError) as unknown:
            await by_elevenlabs(running, "wrong")
        assert unknown.value.status_code == 401
        assert unknown.value.body["detail"]["status"] == "invalid_api_key"
        assert refused.value.code == "invalid_api_key"


def socket_url(running: Running, voice: str = "ann", query: str = "", kind: str = "") -> str:
    url = f"ws://127.0.0.1:{running.port}/v1/text-to-speech/{voice}/{kind}stream-input"
    return f"{url}?output_format=pcm_24000{query}"


async def heard(url: str, first: dict[str, str], **options: Any) -> list[dict[str, Any]]:
    """All messages of an ElevenLabs socket to which one sentence is sent."""
    messages: list[dict[str, Any]] = []
    try:
        async with connect(url, compression=None, **options) as connection:
            await connection.send(json.dumps({"text": " ", **first}))
            end = {"close_socket": True} if "multi-" in url else {"text": ""}
            for message in ({"text": "Hello you. "}, end):
                await connection.send(json.dumps(message))
            while True:
                messages.append(json.loads(await connection.recv()))
    except ConnectionClosed:
        return messages


@pytest.mark.parametrize("kind", ["", "multi-"])
@pytest.mark.parametrize(
    "shown",
    [
        ({"xi_api_key": "{key}"}, "", {}),
        ({"xi-api-key": "{key}"}, "", {}),
        ({"authorization": "Bearer {key}"}, "", {}),
        ({"authorization": "{key}"}, "", {}),
        ({}, "&single_use_token={key}", {}),
        ({}, "&authorization=Bearer%20{key}", {}),
        ({}, "", {"xi-api-key": "{key}"}),
        ({"xi_api_key": "{key}"}, "", {"xi-api-key": "wrong"}),
    ],
)
async def test_a_key_opens_their_socket_wherever_it_stands(
    run: Run, tmp_path: Path, kind: str, shown: tuple[dict[str, str], str, dict[str, str]]
) -> None:
    key, _, settings = ring(tmp_path)
    first, query, headers = shown
    first = {name: value.format(key=key) for name, value in first.items()}
    headers = {name: value.format(key=key) for name, value in headers.items()}
    async with run(**settings) as running:
        url = socket_url(running, query=query.format(key=key), kind=kind)
        messages = await heard(url, first, additional_headers=headers)
        assert messages[-1]["isFinal"]
        assert any(message["audio"] for message in messages)


@pytest.mark.parametrize("voice", ["ann", "nobody"])
@pytest.mark.parametrize(
    "shown",
    [
        ({}, "", {}),
        ({"xi_api_key": "wrong"}, "", {}),
        ({"authorization": "Bearer "}, "", {}),
        ({}, "&single_use_token=wrong", {}),
        ({}, "", {"xi-api-key": "wrong"}),
    ],
)
async def test_without_a_key_their_socket_tells_nothing_but_that(
    run: Run, tmp_path: Path, voice: str, shown: tuple[dict[str, str], str, dict[str, str]]
) -> None:
    _, _, settings = ring(tmp_path)
    first, query, headers = shown
    async with run(**settings) as running:
        [message] = await heard(
            socket_url(running, voice, query), first, additional_headers=headers
        )
        assert (message["error"], message["code"]) == ("invalid_api_key", 1008)
        assert not running.engine.requests
        await running.quiet()


async def test_their_socket_does_not_wait_for_a_key_for_ever(run: Run, tmp_path: Path) -> None:
    _, _, settings = ring(tmp_path)
    async with run(**settings, start_timeout_seconds=0.1) as running:
        async with connect(socket_url(running), compression=None) as connection:
            assert json.loads(await connection.recv())["error"] == "invalid_api_key"


async def test_convert_realtime_with_and_without_a_key(run: Run, tmp_path: Path) -> None:
    key, _, settings = ring(tmp_path)
    async with run(**settings) as running:

        def speak(key: str) -> bytes:
            api = ElevenLabs(base_url=running.url, api_key=key).text_to_speech
            api._ws_base_url = running.url
            return b"".join(api.convert_realtime("ann", text=iter(["Hello ", "you."])))

        assert await asyncio.to_thread(speak, key)
        with pytest.raises(ApiError):
            await asyncio.to_thread(speak, "wrong")


async def test_quotas_are_those_of_the_key(run: Run, tmp_path: Path) -> None:
    ann, bob, settings = ring(tmp_path, chars_per_minute=15)
    async with run(**settings) as running:
        assert await by_openai(running, ann)
        with pytest.raises(openai.RateLimitError) as refused:
            await by_openai(running, ann)
        assert refused.value.code == "quota_exceeded"
        with pytest.raises(ApiError) as busy:
            await by_elevenlabs(running, ann)
        assert busy.value.status_code == 429
        assert await by_openai(running, bob)


async def test_jobs_are_those_of_the_key(run: Run, tmp_path: Path) -> None:
    ann, bob, settings = ring(tmp_path)
    async with run(**settings) as running, httpx.AsyncClient(base_url=running.url) as http:
        hers = {"authorization": f"Bearer {ann}"}
        body = {"tasks": [{"text": "One."}]}
        made = await http.post("/batch_tts", json=body, headers=hers)
        job = made.headers["location"]
        his = {"authorization": f"Bearer {bob}"}
        assert (await http.get(job, headers=his)).status_code == 404
        assert (await http.delete(job, headers=his)).status_code == 404
        assert (await http.get(job, headers=hers)).status_code == 200
        assert (await http.get(job)).status_code == 401
