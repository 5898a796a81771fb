from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path, PurePosixPath
from typing import Any

import httpx
import pytest
from conftest import Run, Running
from fake_engine import FakeSynthesizer, Script
from prometheus_client.parser import text_string_to_metric_families
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Origin

from engine.api import SpeechError
from gateway.app import serve
from gateway.client import Audio, GatewayError
from gateway.protocol import TurnDone
from gateway.server import listen
from gateway.settings import Settings


async def get(running: Running, path: str) -> httpx.Response:
    async with httpx.AsyncClient() as http:
        return await http.get(running.url + path)


def test_the_gateway_loads_neither_torch_nor_vllm() -> None:
    script = (
        "import sys, gateway.app, gateway.client, gateway.containers\n"
        "loaded = {name.split('.')[0] for name in sys.modules}\n"
        "print(sorted(loaded & {'torch', 'vllm', 'transformers'}))\n"
        "print(sorted(name for name in sys.modules if name.startswith('engine')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["[]", "['engine', 'engine.api']"]


class TestHealth:
    async def test_a_gateway_that_speaks_is_ready(self, run: Run) -> None:
        async with run() as running:
            alive = await get(running, "/health")
            assert (alive.status_code, alive.json()) == (
                200,
                {"status": "ok", "engine": "ready", "sessions": 0, "draining": False},
            )
            ready = await get(running, "/health/ready")
            assert ready.status_code == 200
            assert ready.json()["audio_ms"] == 200
            assert ready.headers["cache-control"] == "no-store"

    async def test_probes_cannot_load_the_engine(self, run: Run) -> None:
        async with run(ready_cache_seconds=60) as running:
            before = running.engine.probes
            await asyncio.gather(*(get(running, "/health/ready") for _ in range(30)))
            assert running.engine.probes == before == 1

    async def test_the_answer_is_asked_for_again_after_a_while(self, run: Run) -> None:
        async with run(ready_cache_seconds=0) as running:
            await get(running, "/health/ready")
            await get(running, "/health/ready")
            assert running.engine.probes == 3

    async def test_it_says_what_it_does_while_it_starts(self, run: Run) -> None:
        engine = FakeSynthesizer()
        engine.start_hold = asyncio.Event()
        async with run(engine, ready=False) as running:
            while engine.state != "starting":
                await asyncio.sleep(0.001)
            assert (await get(running, "/health")).json()["engine"] == "starting"
            ready = await get(running, "/health/ready")
            assert (ready.status_code, ready.json()) == (
                503,
                {"ready": False, "reason": "starting", "doing": "loading", "done": 0.5},
            )
            with pytest.raises(GatewayError) as refused:
                async with running.client():
                    pass
            assert (refused.value.code, refused.value.retry_after_ms) == ("starting", 2000)
            engine.start_hold.set()
            while not running.gateway.started:
                await asyncio.sleep(0.001)
            assert (await get(running, "/health/ready")).status_code == 200

    async def test_an_engine_that_cannot_start_is_told(self, run: Run) -> None:
        engine = FakeSynthesizer()
        engine.start_error = OSError("no checkpoint there")
        async with run(engine, ready=False) as running:
            while running.gateway.failure is None:
                await asyncio.sleep(0.001)
            ready = await get(running, "/health/ready")
            assert (ready.status_code, ready.json()["reason"]) == (503, "failed")
            assert ready.json()["message"] == "no checkpoint there"

    @pytest.mark.parametrize("state", ["restarting", "stopped"])
    async def test_an_engine_that_is_away_is_not_ready(self, run: Run, state: str) -> None:
        async with run() as running:
            running.engine.state = state
            ready = await get(running, "/health/ready")
            assert (ready.status_code, ready.json()) == (503, {"ready": False, "reason": state})
            with pytest.raises(GatewayError) as refused:
                async with running.client():
                    pass
            assert refused.value.code == f"engine_{state}"

    @pytest.mark.parametrize(
        ("script", "reason"),
        [
            (Script(samples=0), "silent"),
            (Script(fail_after=0, error=SpeechError("runaway", "No end.")), "runaway"),
            (Script(delay=60.0), "deadline"),
        ],
    )
    async def test_one_that_does_not_speak_is_not_ready(
        self, run: Run, script: Script, reason: str
    ) -> None:
        async with run(ready_cache_seconds=0, ready_deadline_seconds=0.05) as running:
            running.engine.probe = script
            ready = await get(running, "/health/ready")
            assert (ready.status_code, ready.json()["reason"]) == (503, reason)
            assert running.engine.running == 0
            running.engine.probe = Script()
            assert (await get(running, "/health/ready")).status_code == 200


class TestPages:
    async def test_the_page_and_all_it_names_are_served(self, run: Run) -> None:
        async with run() as running:
            page = await get(running, "/")
            assert page.headers["content-type"].startswith("text/html")
            policy = page.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            named = set(re.findall(r'(?:src|href)="([^"#]+)"', page.text))
            assert {"app/main.js", "client/index.js", "style.css", "icon.svg"} <= named
            kinds = {".js": "javascript", ".css": "text/css", ".svg": "image/svg+xml"}
            for path in sorted(named):
                kind = kinds[PurePosixPath(path).suffix]
                answer = await get(running, f"/{path}")
                assert answer.status_code == 200
                assert kind in answer.headers["content-type"]
                assert answer.headers["x-content-type-options"] == "nosniff"

    @pytest.mark.parametrize("path", ["/nothing", "/__init__.py", "/../app.py", "/v1/stream"])
    async def test_nothing_else_is(self, run: Run, path: str) -> None:
        async with run() as running:
            assert (await get(running, path)).status_code == 404


async def test_metrics_can_be_scraped_and_count(run: Run) -> None:
    async with run() as running:
        async with running.client() as client:
            async for event in client.speak("One sentence. And another one."):
                if isinstance(event, Audio):
                    scraped = await get(running, "/metrics")
        await running.quiet()
        during = samples(scraped.text)
        after = samples((await get(running, "/metrics")).text)
    assert scraped.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert during["voxgate_sessions"] == 1
    assert after["voxgate_sessions"] == 0
    assert after["voxgate_turns_total/done"] == 1
    assert after["voxgate_pieces_total/done"] == 2
    assert after["voxgate_first_packet_seconds_count"] == 1
    assert after["voxgate_packets_total"] == after["voxgate_lead_seconds_count"] > 10
    assert after["voxgate_prompt_tokens_cached_total"] == 2 * 96
    assert after["voxgate_engine_state/ready"] == 1
    assert after["voxgate_engine_state/starting"] == 0


def samples(text: str) -> dict[str, float]:
    """Sample values by name and label values."""
    return {
        "/".join([sample.name, *sample.labels.values()]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


class TestCaptions:
    async def test_they_can_be_fetched_while_a_session_lives_and_after(
        self, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with run() as running:
            async with running.client() as client:
                path = f"/v1/sessions/{client.started.session}/captions.vtt"
                assert (await get(running, path)).text == "WEBVTT\n"
                async for _ in client.speak("Hello there. 你好。"):
                    pass
                live = await get(running, path)
                assert live.headers["content-type"] == "text/vtt; charset=utf-8"
                assert "Hello <" in live.text
            await running.quiet()
            assert (await get(running, path)).text == live.text
            assert (await get(running, path + "?turn=2")).text == "WEBVTT\n"
            assert (await get(running, path + "?turn=x")).status_code == 400
            monkeypatch.setattr("gateway.sessions._TRANSCRIPT_SECONDS", 0.0)
            assert (await get(running, path)).status_code == 404

    async def test_a_silent_session_leaves_none(self, run: Run) -> None:
        async with run() as running:
            async with running.client() as client:
                path = f"/v1/sessions/{client.started.session}/captions.vtt"
            await running.quiet()
            assert (await get(running, path)).json()["code"] == "unknown_session"


class TestAdmission:
    async def test_one_too_many_is_told_when_to_come_back(
        self, run: Run, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with run(max_sessions=1, retry_after_ms=700) as running:
            async with running.client():
                with pytest.raises(InvalidStatus) as refused:
                    await connect(running.url.replace("http", "ws") + "/v1/stream")
                answer = refused.value.response
                assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
                error = json.loads(answer.body)
                assert (error["code"], error["fatal"]) == ("capacity", True)
                assert 700 <= error["retry_after_ms"] < 1000
                with pytest.raises(GatewayError) as told:
                    async with running.client():
                        pass
                assert told.value.code == "capacity"
                assert told.value.retry_after_ms
            await running.quiet()
            async with running.client() as client:
                assert client.started.protocol == 1
        counted = samples(running.gateway.metrics.render().decode())
        assert counted["voxgate_sessions_refused_total/capacity"] == 2
        assert not [record for record in caplog.records if record.levelname == "ERROR"]

    async def test_a_page_is_told_within_the_websocket(self, run: Run) -> None:
        async with run(max_sessions=1) as running, running.client():
            url = running.url.replace("http", "ws") + "/v1/stream"
            async with connect(url, origin=Origin(running.url)) as peer:
                error: dict[str, Any] = json.loads(await peer.recv())
                with pytest.raises(ConnectionClosed) as closed:
                    await peer.recv()
            assert (error["code"], error["fatal"]) == ("capacity", True)
            assert closed.value.rcvd is not None
            assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1013, "capacity")

    async def test_a_busy_engine_lets_nobody_in(self, run: Run) -> None:
        async with run(max_waiting_pieces=3) as running:
            running.engine.waiting = 4
            with pytest.raises(GatewayError, match="4 pieces of text wait"):
                async with running.client():
                    pass

    async def test_one_client_may_have_so_many(self, run: Run) -> None:
        async with run(max_sessions_per_client=1, retry_after_ms=5) as running:
            async with running.client() as client:
                assert client.started.limits["sessions_per_client"] == 1
                with pytest.raises(GatewayError) as refused:
                    async with running.client():
                        pass
                assert (refused.value.code, refused.value.retry_after_ms) == (
                    "too_many_sessions",
                    5,
                )
            await running.quiet()
            async with running.client():
                pass

    async def test_a_proxy_may_name_the_client(self, run: Run) -> None:
        async with run(max_sessions_per_client=1, client_header="X-Client-Id") as running:
            url = running.url.replace("http", "ws") + "/v1/stream"

            async def first_answer(name: str) -> str:
                try:
                    peer = await connect(url, additional_headers={"X-Client-Id": name})
                except InvalidStatus as refused:
                    assert refused.response.status_code == 429
                    return str(json.loads(refused.response.body)["code"])
                peers.append(peer)
                await peer.send('{"type": "session.start"}')
                return str(json.loads(await peer.recv())["type"])

            peers: list[ClientConnection] = []
            answers = [await first_answer(name) for name in ("ann", "bob", "ann")]
            assert answers == ["session.started", "session.started", "too_many_sessions"]
            for peer in peers:
                await peer.close()
            await running.quiet()
            assert not running.gateway.sessions._clients


class TestOrigins:
    @pytest.mark.parametrize(
        ("origin", "allowed", "status"),
        [
            (None, "", 101),
            ("http://127.0.0.1:{port}", "", 101),
            ("http://127.0.0.1", "", 403),
            ("https://evil.example", "", 403),
            ("null", "", 403),
            ("https://good.example", "https://good.example, https://other.example", 101),
            ("https://evil.example", "*", 101),
        ],
    )
    async def test_pages_of_others_may_not_connect(
        self, run: Run, origin: str | None, allowed: str, status: int
    ) -> None:
        async with run(allowed_origins=allowed) as running:
            headers = {} if origin is None else {"Origin": origin.format(port=running.port)}
            url = running.url.replace("http", "ws") + "/v1/stream"
            try:
                async with connect(url, additional_headers=headers) as peer:
                    assert peer.response is not None
                    assert peer.response.status_code == status
            except InvalidStatus as refused:
                assert refused.response.status_code == status
                assert json.loads(refused.response.body)["code"] == "origin_not_allowed"


class TestDrain:
    async def test_what_was_sent_is_still_spoken(self, run: Run) -> None:
        engine = FakeSynthesizer(lambda _request, _number: Script(hold=hold))
        hold = asyncio.Event()
        async with run(engine) as running, running.client() as client:
            speaking = client.speak("One sentence. And another one.")
            while not engine.requests:
                await anext(speaking)
            draining = asyncio.create_task(running.server.drain())
            await asyncio.sleep(0)
            assert (await get(running, "/health/ready")).json()["reason"] == "draining"
            with pytest.raises(GatewayError) as refused:
                async with running.client():
                    pass
            assert refused.value.code == "draining"
            hold.set()
            events = [event async for event in speaking]
            assert isinstance(events[-1], TurnDone)
            with pytest.raises(GatewayError) as ended:
                async for _ in client.speak("More."):
                    pass
            assert ended.value.code in ("session_ending", "draining")
            await draining
            assert not running.gateway.connections
            assert len(engine.finished) == 2

    async def test_it_does_not_wait_for_ever(self, run: Run) -> None:
        engine = FakeSynthesizer(lambda _request, _number: Script(hold=asyncio.Event()))
        async with run(engine, drain_seconds=0.05) as running, running.client() as client:
            await client.send("text.append", text="One sentence. And another one.")
            while not engine.running:
                await asyncio.sleep(0.001)
            await running.server.drain()
            assert running.server.should_exit
            await running.task
            assert engine.running == 0


SERVER = textwrap.dedent(
    """
    import sys
    sys.path.insert(0, sys.argv[2])
    from fake_engine import FakeSynthesizer, Script
    from gateway.app import serve
    from gateway.settings import Settings

    engine = FakeSynthesizer(lambda request, number: Script(samples=24_000, delay=0.02))
    if sys.argv[3:] == ["broken"]:
        engine.start_error = OSError("no checkpoint there")
    try:
        serve(
            Settings(port=int(sys.argv[1])),
            lambda: engine,
            lambda url: print("ready", url, flush=True),
            lambda doing, done: print("doing", doing, done, flush=True),
        )
    except OSError as failure:
        print("failed", failure, flush=True)
    print("over", engine.state, len(engine.finished), flush=True)
    """
)


async def start_server(*arguments: str, stderr: int | None = None) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        SERVER,
        *arguments[:1],
        str(Path(__file__).parent),
        *arguments[1:],
        stdout=asyncio.subprocess.PIPE,
        stderr=stderr,
        cwd=Path(__file__).parents[2],
    )


async def line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().strip()


def test_serving_ends_with_a_signal_and_closes_the_engine() -> None:
    engine = FakeSynthesizer()
    urls = []

    def ready(url: str) -> None:
        urls.append(url)
        signal.raise_signal(signal.SIGTERM)

    serve(Settings(port=0), lambda: engine, ready)
    assert urls[0].startswith("http://127.0.0.1:")
    assert engine.state == "stopped"


def test_serving_raises_what_kept_the_engine_from_starting() -> None:
    engine = FakeSynthesizer()
    engine.probe = Script(samples=0)
    with pytest.raises(SpeechError, match="without audio"):
        serve(Settings(port=0), lambda: engine)
    assert engine.state == "stopped"


class TestServe:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    async def test_a_signal_lets_the_turn_end(self, number: signal.Signals) -> None:
        process = await start_server("0")
        assert await line(process) == "doing loading 0.5"
        ready, url = (await line(process)).split()
        assert ready == "ready"
        async with connect(url.replace("http", "ws") + "/v1/stream") as peer:
            await peer.send('{"type":"session.start"}')
            await peer.send('{"type":"text.append","text":"One sentence. And another one."}')
            await peer.send('{"type":"turn.end"}')
            while isinstance(await peer.recv(), str):
                pass
            process.send_signal(number)
            kinds = []
            with pytest.raises(ConnectionClosed) as closed:
                while True:
                    raw = await peer.recv()
                    if isinstance(raw, str):
                        kinds.append(json.loads(raw)["type"])
        assert kinds[-2:] == ["turn.done", "session.ended"]
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1012, "draining")
        assert await line(process) == "over stopped 2"
        assert await process.wait() == 0

    async def test_a_second_signal_does_not_wait(self) -> None:
        process = await start_server("0", stderr=asyncio.subprocess.PIPE)
        await line(process)
        url = (await line(process)).split()[1]
        async with connect(url.replace("http", "ws") + "/v1/stream") as peer:
            await peer.send('{"type":"session.start"}')
            await peer.send(json.dumps({"type": "text.append", "text": "One sentence. " * 400}))
            while isinstance(await peer.recv(), str):
                pass
            process.send_signal(signal.SIGTERM)
            raw: str | bytes = b""
            while not (isinstance(raw, str) and json.loads(raw)["type"] == "server.draining"):
                raw = await peer.recv()
            process.send_signal(signal.SIGTERM)
            with pytest.raises(ConnectionClosed):
                while True:
                    await peer.recv()
        assert (await line(process)).startswith("over stopped")
        assert process.stderr is not None
        told = (await process.stderr.read()).decode()
        assert "1 session still hears" in told
        assert "Traceback" not in told
        assert await process.wait() == 0

    async def test_an_engine_that_cannot_start_ends_it(self) -> None:
        process = await start_server("0", "broken")
        assert await line(process) == "doing loading 0.5"
        assert await line(process) == "failed no checkpoint there"
        assert await process.wait() == 0


def test_a_port_in_use_is_told() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"Port {port} on 127.0.0.1 is in use; choose another"):
            listen(Settings(port=port))


def test_an_address_that_is_not_ours_is_told() -> None:
    with pytest.raises(OSError, match="assign"):
        listen(Settings(host="203.0.113.7", port=0))


def test_it_listens_on_ipv6_too() -> None:
    try:
        listener = listen(Settings(host="::1", port=0))
    except OSError:
        pytest.skip("this machine has no IPv6")
    with listener:
        assert listener.family == socket.AF_INET6


async def test_a_plain_request_to_the_stream_is_no_websocket(run: Run) -> None:
    async with run() as running:
        with pytest.raises(InvalidStatus):
            async with connect(running.url.replace("http", "ws") + "/v1/other"):
                pass
