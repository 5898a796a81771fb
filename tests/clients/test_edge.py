"""Paths, methods and origins that clients get wrong or browsers ask about, in every API's shape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from elevenlabs.client import AsyncElevenLabs
from gateway_conftest import Run
from test_api_keys import ring

OPENAI, ELEVENLABS, NATIVE = "error", "detail", "code"


def body(path: str) -> dict[str, str]:
    return {"model": "tts-1", "input": "Hi."} if "audio" in path else {"text": "Hi."}


def code_of(answer: httpx.Response, shape: str) -> Any:
    value = answer.json()[shape]
    return value if shape == NATIVE else value["code"]


@pytest.mark.parametrize(
    ("method", "path", "status", "shape"),
    [
        ("GET", "/v1/chat/completions", 404, OPENAI),
        ("POST", "/v1/audio/transcriptions", 404, OPENAI),
        ("GET", "/v1/audio/speech", 405, OPENAI),
        ("PUT", "/v1/models", 405, OPENAI),
        ("GET", "/v1/text-to-speech/ann", 405, ELEVENLABS),
        ("POST", "/v1/text-to-speech/ann/whisper", 404, ELEVENLABS),
        ("DELETE", "/v1/voices/ann", 405, ELEVENLABS),
        ("GET", "/v1/user/subscription", 404, ELEVENLABS),
        ("GET", "/tts", 405, NATIVE),
        ("POST", "/tts/bytes", 404, NATIVE),
        ("PATCH", "/batch_tts/abc", 405, NATIVE),
        ("GET", "/nothing.html", 404, NATIVE),
        ("GET", "/v1/tokens", 405, NATIVE),
    ],
)
async def test_what_is_not_there_is_told_in_the_shape_of_its_api(
    run: Run, method: str, path: str, status: int, shape: str
) -> None:
    async with run() as running, httpx.AsyncClient(base_url=running.url) as http:
        answer = await http.request(method, path)
    assert answer.status_code == status
    assert code_of(answer, shape) == {404: "unknown_url", 405: "method_not_allowed"}[status]
    if shape == NATIVE:
        assert answer.json()["hint"]
    if status == 405:
        assert answer.headers["allow"]
        assert method not in answer.headers["allow"].split(", ")


async def test_head_and_options_are_answered(run: Run) -> None:
    async with run() as running, httpx.AsyncClient(base_url=running.url) as http:
        for path in ("/", "/v1/models", "/v1/voices", "/health"):
            head = await http.head(path)
            assert (head.status_code, head.content) == (200, b"")
        assert (await http.head("/v1/audio/speech")).status_code == 405
        options = await http.options("/v1/audio/speech")
        assert (options.status_code, options.headers["allow"]) == (204, "POST")
        assert (await http.options("/v1/nothing")).status_code == 404
        assert not running.engine.requests


async def test_slashes_too_many_do_no_harm(run: Run) -> None:
    async with run() as running:
        eleven = AsyncElevenLabs(base_url=f"{running.url}/", api_key="none").text_to_speech
        assert [part async for part in eleven.convert("ann", text="Hi you.")]
        theirs = openai.AsyncOpenAI(base_url=f"{running.url}//v1/", api_key="none")
        assert [model async for model in theirs.models.list()]
        async with httpx.AsyncClient(base_url=running.url) as http:
            for path in ("/v1/audio/speech/", "/tts/", "/v1/text-to-speech/ann/stream/"):
                assert (await http.post(path, json=body(path))).status_code == 200, path
            assert (await http.get("//")).status_code == 200


async def test_a_fault_of_the_server_has_the_shape_of_the_api(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run() as running, httpx.AsyncClient(base_url=running.url) as http:

        def broken() -> None:
            raise ZeroDivisionError("secret")

        monkeypatch.setattr(running.engine, "voices", broken)
        for path, shape in (("/v1/audio/speech", OPENAI), ("/v1/voices", ELEVENLABS)):
            answer = await http.request("POST" if shape == OPENAI else "GET", path, json=body(path))
            assert answer.status_code == 500
            assert code_of(answer, shape) == "internal"
            assert "secret" not in answer.text


# -- pages of other origins -----------------------------------------------------------------------

ORIGIN = "https://app.example"
ASKS = {
    "origin": ORIGIN,
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type,x-stainless-lang",
}


async def test_a_page_of_an_allowed_origin_may_ask_and_read(run: Run, tmp_path: Path) -> None:
    key, _, settings = ring(tmp_path)
    async with run(allowed_origins=ORIGIN, **settings) as running:
        async with httpx.AsyncClient(base_url=running.url) as http:
            # Browsers ask without the key.
            asked = await http.options("/v1/audio/speech", headers=ASKS)
            assert asked.status_code == 204
            assert asked.headers["access-control-allow-origin"] == ORIGIN
            assert "POST" in asked.headers["access-control-allow-methods"]
            assert "x-stainless-lang" in asked.headers["access-control-allow-headers"]
            headers = {"origin": ORIGIN, "authorization": f"Bearer {key}"}
            spoken = await http.post("/v1/audio/speech", json=body("audio"), headers=headers)
            assert spoken.status_code == 200
            assert spoken.headers["access-control-allow-origin"] == ORIGIN
            assert "origin" in spoken.headers["vary"].lower()
            # It may read why it was refused, too.
            refused = await http.post(
                "/v1/audio/speech", json=body("audio"), headers={"origin": ORIGIN}
            )
            assert refused.status_code == 401
            assert refused.headers["access-control-allow-origin"] == ORIGIN


@pytest.mark.parametrize(
    ("path", "shape"),
    [("/v1/audio/speech", OPENAI), ("/v1/text-to-speech/ann", ELEVENLABS), ("/tts", NATIVE)],
)
async def test_a_page_of_another_origin_is_told_nothing_else(
    run: Run, path: str, shape: str
) -> None:
    async with run() as running, httpx.AsyncClient(base_url=running.url) as http:
        asked = await http.options(path, headers=ASKS)
        voices = await http.get("/v1/voices", headers={"origin": ORIGIN})
    assert asked.status_code == 403
    assert code_of(asked, shape) == "origin_not_allowed"
    for answer in (asked, voices):
        assert "access-control-allow-origin" not in answer.headers
