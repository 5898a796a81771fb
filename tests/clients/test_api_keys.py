"""Keys, as the libraries of the other APIs send them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from elevenlabs.client import AsyncElevenLabs
from elevenlabs.core import ApiError
from gateway_conftest import Run, Running

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
        assert unknown.value.body["detail"]["status"]


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
