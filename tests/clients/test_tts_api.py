"""`POST /tts` and `/batch_tts`, by plain HTTP."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from clients_support import decoded
from fake_engine import FakeSynthesizer, Script
from gateway_conftest import Run, Running
from hypothesis import given
from hypothesis import strategies as st

from engine.api import OFFLINE, SpeechError, SpeechRequest
from gateway.http.native import negotiate
from gateway.http.sound import NATIVE
from gateway.link import GatewayError

TEXT = "Hello there. How are you today?"


def http(running: Running) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=running.url, timeout=30)


class TestTts:
    @pytest.mark.parametrize(
        ("accept", "media_type", "container"),
        [
            (None, "audio/wav", "wav"),
            ("audio/ogg", "audio/ogg", "ogg"),
            ("audio/mpeg", "audio/mpeg", "mp3"),
            ("audio/wav;q=0.5, audio/flac", "audio/flac", "flac"),
            ("text/html, audio/*", "audio/wav", "wav"),
        ],
    )
    async def test_accept_chooses_the_format(
        self, run: Run, accept: str | None, media_type: str, container: str
    ) -> None:
        async with run() as running, http(running) as client:
            headers = {"accept": accept} if accept else {}
            answer = await client.post("/tts", json={"text": TEXT}, headers=headers)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == media_type
        samples, rate = decoded(answer.content, container)
        assert 0.7 < samples.size / rate < 1.2
        assert np.abs(samples).max() > 0.2

    async def test_speaker_speed_and_seed_reach_the_engine(self, run: Run) -> None:
        async with run() as running, http(running) as client:
            for speaker in ("bao", 1):
                wish = {"text": "Hi.", "speaker_id": speaker, "speed": 1.5, "seed": 7}
                assert (await client.post("/tts", json=wish)).status_code == 200
            asked = running.engine.requests
        assert {(r.voice, r.speed, r.seed) for r in asked} == {("bao", 1.5, 7)}

    async def test_a_long_text_comes_whole_and_in_order(self, run: Run) -> None:
        text = " ".join(f"This is sentence number {number} of many." for number in range(150))
        engine = FakeSynthesizer(lambda *_: Script(samples=480))
        async with run(engine, max_backlog_chars=1_200) as running, http(running) as client:
            answer = await client.post("/tts", json={"text": text})
        assert len(text) > 4 * 1_200
        assert " ".join(request.text for request in engine.requests) == text
        samples, _ = decoded(answer.content)
        assert samples.size > 150 * 480

    async def test_a_neutral_emotion_is_spoken_and_others_are_told(self, run: Run) -> None:
        async with run() as running, http(running) as client:
            calm = await client.post("/tts", json={"text": "Hi.", "emotion": "neutral"})
            glad = await client.post("/tts", json={"text": "Hi.", "emotion": "happy"})
        assert calm.status_code == 200
        assert glad.status_code == 400
        assert glad.json()["code"] == "unsupported_emotion"
        assert glad.json()["available"] == ["neutral"]

    @pytest.mark.parametrize(
        ("body", "status", "code", "field"),
        [
            ({}, 400, "bad_field", "text"),
            ({"text": ""}, 400, "empty_text", None),
            ({"text": "a" * 20_001}, 413, "text_too_long", "text"),
            ({"text": "Hi.", "speaker_id": "nobody"}, 404, "unknown_voice", "voice"),
            ({"text": "Hi.", "speaker_id": 9}, 404, "unknown_voice", "speaker_id"),
            ({"text": "Hi.", "speed": 9.0}, 400, "bad_speed", "speed"),
            ({"text": "Hi.", "language": "fr"}, 400, "unsupported_language", "language"),
            ({"text": "Hi.", "pitch": 2}, 400, "unknown_parameter", "pitch"),
            ({"text": "Hi.", "speed": "1"}, 400, "bad_field", "speed"),
            ({"text": "Hi.", "seed": -1}, 400, "bad_field", "seed"),
            ([], 400, "bad_field", None),
        ],
    )
    async def test_refusals_name_code_and_field(
        self, run: Run, body: Any, status: int, code: str, field: str | None
    ) -> None:
        async with run() as running, http(running) as client:
            answer = await client.post("/tts", json=body)
        assert (answer.status_code, answer.json()["code"]) == (status, code)
        assert answer.json().get("field") == field

    async def test_what_is_not_json_and_what_is_too_large(self, run: Run) -> None:
        async with run() as running, http(running) as client:
            broken = await client.post("/tts", content=b"{")
            large = await client.post("/tts", content=b"x" * 200_000)
            strange = await client.post("/tts", json={"text": "Hi."}, headers={"accept": "a/b"})
        assert (broken.status_code, broken.json()["code"]) == (400, "bad_json")
        assert (large.status_code, large.json()["code"]) == (413, "text_too_long")
        assert (strange.status_code, strange.json()["code"]) == (406, "not_acceptable")
        assert "audio/ogg" in strange.json()["available"]

    @pytest.mark.parametrize(
        ("path", "body"),
        [
            ("/tts", {"text": "Hi."}),
            ("/batch_tts", {"tasks": [{"text": "Hi."}]}),
            ("/v1/audio/speech", {"input": "Hi.", "model": "tts-1"}),
            ("/v1/text-to-speech/ann", {"text": "Hi."}),
        ],
    )
    async def test_pages_of_other_origins_cannot_keep_the_engine_busy(
        self, run: Run, path: str, body: dict[str, Any]
    ) -> None:
        # A form of any page can post this without asking.
        headers = {"origin": "https://elsewhere.example", "content-type": "text/plain"}
        async with run() as running, http(running) as client:
            answer = await client.post(path, json=body, headers=headers)
            assert answer.status_code == 403
            assert "origin" in answer.text
            assert (await client.post(path, json=body)).status_code in (200, 202)

    async def test_a_client_that_leaves_frees_the_engine(self, run: Run) -> None:
        engine = FakeSynthesizer(lambda *_: Script(samples=2_400_000, delay=0.05))
        async with run(engine) as running, http(running) as client:
            async with client.stream("POST", "/tts", json={"text": TEXT}) as answer:
                await anext(answer.aiter_bytes())
                assert engine.running == 1
            while engine.running:
                await asyncio.sleep(0.001)
            await running.quiet()


@given(st.text(max_size=60))
def test_any_accept_header_gives_a_format_or_a_refusal(accept: str) -> None:
    try:
        assert negotiate(accept) in NATIVE.values()
    except GatewayError as refused:
        assert refused.code == "not_acceptable"


# -- jobs -----------------------------------------------------------------------------------------


async def finished(client: httpx.AsyncClient, job: str) -> dict[str, Any]:
    while True:
        status = (await client.get(f"/batch_tts/{job}")).json()
        if status["finished_at"] is not None:
            return dict(status)
        await asyncio.sleep(0.005)


async def created(client: httpx.AsyncClient, *texts: str, **wishes: Any) -> str:
    tasks = [{"text": text} for text in texts]
    answer = await client.post("/batch_tts", json={"tasks": tasks, **wishes})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["job_id"])


class TestBatch:
    async def test_a_job_is_answered_at_once_and_done_later(self, run: Run) -> None:
        go = asyncio.Event()
        engine = FakeSynthesizer(lambda *_: Script(hold=go))
        async with run(engine) as running, http(running) as client:
            answer = await client.post(
                "/batch_tts", json={"tasks": [{"text": "One.", "id": "a"}, {"text": "Two."}]}
            )
            job = answer.json()
            assert answer.headers["location"] == f"/batch_tts/{job['job_id']}"
            assert job["status"] == "queued"
            waiting = await client.get(
                job["tasks"][0]["audio"] or f"{answer.headers['location']}/tasks/0/audio"
            )
            assert (waiting.status_code, waiting.json()["code"]) == (409, "not_ready")
            go.set()
            done = await finished(client, job["job_id"])
            assert (done["status"], done["progress"]["share"]) == ("done", 1.0)
            assert [task["id"] for task in done["tasks"]] == ["a", None]
            for task in done["tasks"]:
                audio = await client.get(task["audio"]["url"])
                assert audio.headers["content-type"] == "audio/wav"
                assert len(audio.content) == task["audio"]["bytes"]
                samples, rate = decoded(audio.content)
                assert round(samples.size / rate * 1000) == task["audio"]["ms"]
        assert {request.priority for request in engine.requests} == {OFFLINE}

    @pytest.mark.parametrize("format", ["ogg", "mp3", "flac", "aac"])
    async def test_formats(self, run: Run, format: str) -> None:
        async with run() as running, http(running) as client:
            done = await finished(client, await created(client, "One.", format=format))
            audio = await client.get(done["tasks"][0]["audio"]["url"])
        assert decoded(audio.content, {"ogg": "ogg"}.get(format, format))[0].size

    async def test_failures_are_kept_apart(self, run: Run) -> None:
        def script(request: SpeechRequest, _: int) -> Script:
            bad = "Bad" in request.text
            return Script(fail_after=0 if bad else None, error=SpeechError("runaway", "No end."))

        async with run(FakeSynthesizer(script)) as running, http(running) as client:
            tasks = [
                {"text": "Good."},
                {"text": "Bad."},
                {"text": "Good.", "speaker_id": "nobody"},
                {"text": "a" * 20_001},
                {"text": "Good.", "emotion": "angry"},
            ]
            answer = await client.post("/batch_tts", json={"tasks": tasks})
            done = await finished(client, answer.json()["job_id"])
            missing = await client.get(f"{answer.headers['location']}/tasks/1/audio")
        assert done["status"] == "partial"
        assert [task["status"] for task in done["tasks"]] == ["done"] + 4 * ["failed"]
        codes = [task["error"]["code"] for task in done["tasks"][1:]]
        assert codes == ["runaway", "unknown_voice", "text_too_long", "unsupported_emotion"]
        assert missing.status_code == 409
        assert "runaway" in missing.json()["message"]

    async def test_events_tell_every_change(self, run: Run) -> None:
        go = asyncio.Event()
        engine = FakeSynthesizer(lambda *_: Script(hold=go))
        async with run(engine) as running, http(running) as client:
            job = await created(client, "One.", "Two.", "Three.")
            events: list[tuple[str, dict[str, Any]]] = []
            async with client.stream("GET", f"/batch_tts/{job}/events") as answer:
                name = ""
                async for line in answer.aiter_lines():
                    if line.startswith("event: "):
                        name = line[7:]
                    elif line.startswith("data: "):
                        events.append((name, json.loads(line[6:])))
                        go.set()
        assert events[0][0] == "status"
        assert events[-1][0] == "done"
        assert events[-1][1]["status"] == "done"
        told = {each["task"] for name, each in events if name == "task" and each["audio"]}
        assert told == {0, 1, 2}

    async def test_jobs_survive_a_restart(self, run: Run, tmp_path: Path) -> None:
        held = FakeSynthesizer(
            lambda request, _: Script(hold=None if "One" in request.text else asyncio.Event())
        )
        async with run(held, jobs_dir=str(tmp_path)) as running, http(running) as client:
            job = await created(client, "One.", "Two.", "Three.")
            while (await client.get(f"/batch_tts/{job}")).json()["progress"]["done"] < 1:
                await asyncio.sleep(0.005)
        async with run(jobs_dir=str(tmp_path)) as running, http(running) as client:
            done = await finished(client, job)
            assert done["status"] == "done"
            for task in done["tasks"]:
                assert decoded((await client.get(task["audio"]["url"])).content)[0].size
            # What was done is not done again.
            assert {request.text for request in running.engine.requests} == {"Two.", "Three."}

    async def test_they_survive_where_nothing_was_configured(
        self, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int
    ) -> None:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
        folder = tmp_path / "voxgate" / f"jobs-127.0.0.1-{unused_tcp_port}"
        held = FakeSynthesizer(lambda *_: Script(hold=asyncio.Event()))
        async with run(held, port=unused_tcp_port) as running, http(running) as client:
            job = await created(client, "One.")
        assert folder.is_dir()
        async with run(port=unused_tcp_port) as running, http(running) as client:
            done = await finished(client, job)
            assert decoded((await client.get(done["tasks"][0]["audio"]["url"])).content)[0].size
            assert (await client.delete(f"/batch_tts/{job}")).status_code == 204
        # Nothing is left behind where nothing is kept.
        assert not folder.exists()
        (tmp_path / "voxgate").rmdir()
        (tmp_path / "voxgate").touch()
        async with run(port=unused_tcp_port) as running, http(running) as client:
            assert (await finished(client, await created(client, "One.")))["status"] == "done"

    async def test_a_server_that_stops_does_not_wait_for_jobs(
        self, run: Run, tmp_path: Path
    ) -> None:
        engine = FakeSynthesizer(lambda *_: Script(hold=asyncio.Event()))
        async with run(engine, jobs_dir=str(tmp_path)) as running, http(running) as client:
            job = await created(client, "One.")
            while not engine.running:
                await asyncio.sleep(0.001)
            async with asyncio.timeout(5):
                await running.gateway.drain()
            assert not engine.running
            status = (await client.get(f"/batch_tts/{job}")).json()
            assert [task["status"] for task in status["tasks"]] == ["queued"]

    async def test_results_expire(self, run: Run) -> None:
        async with run(jobs_keep_seconds=0.05) as running, http(running) as client:
            job = await created(client, "One.")
            while (answer := await client.get(f"/batch_tts/{job}")).status_code == 200:
                await asyncio.sleep(0.01)
            assert (answer.status_code, answer.json()["code"]) == (404, "unknown_job")

    async def test_a_deleted_job_stops(self, run: Run, tmp_path: Path) -> None:
        engine = FakeSynthesizer(lambda *_: Script(hold=asyncio.Event()))
        async with run(engine, jobs_dir=str(tmp_path)) as running, http(running) as client:
            job = await created(client, "One.")
            while not engine.running:
                await asyncio.sleep(0.001)
            assert (await client.delete(f"/batch_tts/{job}")).status_code == 204
            while engine.running:
                await asyncio.sleep(0.001)
            assert (await client.get(f"/batch_tts/{job}")).status_code == 404
            assert (await client.delete(f"/batch_tts/{job}")).status_code == 404
            # The next one is worked on.
            engine.script = lambda *_: Script()
            assert (await finished(client, await created(client, "Two.")))["status"] == "done"

    async def test_a_full_server_makes_jobs_wait(self, run: Run) -> None:
        async with run(max_sessions=1, retry_after_ms=20) as running, http(running) as client:
            async with running.client():
                job = await created(client, "One.")
                await asyncio.sleep(0.05)
                assert (await client.get(f"/batch_tts/{job}")).json()["finished_at"] is None
            assert (await finished(client, job))["status"] == "done"

    @pytest.mark.parametrize(
        ("body", "status", "code"),
        [
            ({"tasks": []}, 400, "bad_field"),
            ({"tasks": [{"text": "a"}] * 6}, 413, "text_too_long"),
            ({"tasks": [{"text": "a"}], "format": "midi"}, 400, "bad_field"),
            ({}, 400, "bad_field"),
        ],
    )
    async def test_refusals(self, run: Run, body: Any, status: int, code: str) -> None:
        async with run(max_job_tasks=5) as running, http(running) as client:
            answer = await client.post("/batch_tts", json=body)
        assert (answer.status_code, answer.json()["code"]) == (status, code)

    async def test_too_many_jobs(self, run: Run) -> None:
        engine = FakeSynthesizer(lambda *_: Script(hold=asyncio.Event()))
        async with run(engine, max_jobs=1) as running, http(running) as client:
            await created(client, "One.")
            answer = await client.post("/batch_tts", json={"tasks": [{"text": "Two."}]})
        assert (answer.status_code, answer.json()["code"]) == (429, "too_many_jobs")
        assert answer.headers["retry-after"] == "2"


@pytest.mark.engine
def test_the_real_voice_speaks(spoken_url: str) -> None:
    answer = httpx.post(
        f"{spoken_url}/tts", json={"text": TEXT}, headers={"accept": "audio/ogg"}, timeout=60
    )
    samples, rate = decoded(answer.content, "ogg")
    assert 1.0 < samples.size / rate < 6.0
    with httpx.Client(base_url=spoken_url, timeout=60) as client:
        tasks = [{"text": "One, two, three."}, {"text": "你好，世界。"}]
        job = client.post("/batch_tts", json={"tasks": tasks}).json()["job_id"]
        with client.stream("GET", f"/batch_tts/{job}/events") as events:
            last = [line for line in events.iter_lines() if line][-1]
        assert json.loads(last.removeprefix("data: "))["status"] == "done"
        samples, rate = decoded(client.get(f"/batch_tts/{job}/tasks/1/audio").content)
    assert np.sqrt(np.mean(samples**2)) > 0.01
