"""A gateway with keys: every way in, and every way that is none."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from gateway_conftest import Run, Running
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from gateway.keys import Key, KeyRing, make_key, write_keys

SECRET = "a secret of at least thirty-two bytes"


class Keys:
    """A file of keys, and the keys themselves."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "keys.json"
        self.entries: list[Key] = []

    def add(self, name: str = "ann", **options: Any) -> str:
        key, entry = make_key(name, **options)
        self.entries.append(entry)
        self.write()
        return key

    def write(self) -> None:
        write_keys(self.path, KeyRing(self.entries))

    @property
    def settings(self) -> dict[str, Any]:
        return {"keys_file": str(self.path)}


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Keys:
    monkeypatch.setenv("VOXGATE_TOKEN_SECRET", SECRET)
    return Keys(tmp_path)


def stream(running: Running, query: str = "") -> str:
    return running.url.replace("http", "ws") + "/v1/stream" + query


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def answer(peer: ClientConnection, **start: Any) -> dict[str, Any]:
    await peer.send(json.dumps({"type": "session.start", **start}))
    found: dict[str, Any] = json.loads(await peer.recv())
    return found


async def refused(url: str, **options: Any) -> tuple[int, str]:
    with pytest.raises(InvalidStatus) as failure:
        async with connect(url, **options):
            pass
    body = json.loads(failure.value.response.body)
    return failure.value.response.status_code, body["code"]


class TestWebSocket:
    @pytest.mark.parametrize(
        "way",
        [
            lambda key: {"additional_headers": bearer(key)},
            lambda key: {"additional_headers": {"xi-api-key": key}},
            lambda key: {"additional_headers": {"x-api-key": key}},
            lambda key: {"subprotocols": [Subprotocol("voxgate.v1"), f"voxgate.token.{key}"]},
        ],
    )
    async def test_a_key_opens_a_session(
        self, run: Run, keys: Keys, way: Callable[[str], dict[str, Any]]
    ) -> None:
        key = keys.add()
        async with run(**keys.settings) as running:
            options = way(key)
            async with connect(stream(running), **options) as peer:
                assert (await answer(peer))["type"] == "session.started"
                expected = "voxgate.v1" if "subprotocols" in options else None
                assert peer.subprotocol == expected
            async with connect(stream(running, f"?token={key}")) as peer:
                assert (await answer(peer))["type"] == "session.started"

    async def test_a_wrong_key_is_refused_before_the_socket_opens(
        self, run: Run, keys: Keys
    ) -> None:
        keys.add()
        metrics = keys.add(scopes=("metrics",))
        async with run(**keys.settings) as running:
            url = stream(running)
            assert await refused(url, additional_headers=bearer("no")) == (401, "unauthorized")
            assert await refused(url + "?token=no") == (401, "unauthorized")
            assert await refused(url, additional_headers=bearer(metrics)) == (403, "forbidden")
            assert not running.gateway.sessions.live

    async def test_the_first_message_may_bring_the_token(self, run: Run, keys: Keys) -> None:
        key = keys.add()
        async with run(**keys.settings) as running:
            async with connect(stream(running)) as peer:
                assert (await answer(peer, access_token=key))["type"] == "session.started"
                [runner] = running.gateway.sessions.live
                assert runner.client == f"key:{keys.entries[0].id}"
            for wrong in ({}, {"access_token": "no"}, {"access_token": 7}):
                async with connect(stream(running)) as peer:
                    error = await answer(peer, **wrong)
                    assert (error["code"], error["fatal"]) == ("unauthorized", True)
                    with pytest.raises(ConnectionClosed) as closed:
                        await peer.recv()
                    assert closed.value.rcvd is not None
                    assert closed.value.rcvd.code == 1008
            await running.quiet()

    async def test_before_that_no_text_is_taken(self, run: Run, keys: Keys) -> None:
        keys.add()
        async with run(**keys.settings) as running, connect(stream(running)) as peer:
            await peer.send('{"type": "text.append", "text": "Hello."}')
            assert json.loads(await peer.recv())["code"] == "not_started"
            assert not running.engine.requests

    async def test_a_page_is_told_in_words(self, run: Run, keys: Keys) -> None:
        keys.add()
        async with run(**keys.settings) as running:
            async with connect(stream(running, "?token=old"), origin=running.url) as peer:  # type: ignore[arg-type]
                assert (await answer(peer))["code"] == "unauthorized"

    async def test_without_keys_nothing_is_asked(self, run: Run) -> None:
        async with run() as running, connect(stream(running)) as peer:
            started = await answer(peer, access_token="anything")
            assert started["type"] == "session.started"
            assert started["unknown"] == []


class TestQuotas:
    async def test_sessions_at_once(self, run: Run, keys: Keys) -> None:
        key, other = keys.add(sessions=1), keys.add()
        async with run(**keys.settings) as running:
            headers = {"additional_headers": bearer(key)}
            async with connect(stream(running), **headers) as peer:
                assert (await answer(peer))["type"] == "session.started"
                assert (await refused(stream(running), **headers))[1] == "too_many_sessions"
                async with connect(stream(running), additional_headers=bearer(other)) as second:
                    assert (await answer(second))["type"] == "session.started"
            await running.quiet()
            async with connect(stream(running), **headers) as peer:
                assert (await answer(peer))["type"] == "session.started"

    async def test_text_a_minute(self, run: Run, keys: Keys) -> None:
        key = keys.add(chars_per_minute=100)
        async with run(**keys.settings) as running:
            async with connect(stream(running), additional_headers=bearer(key)) as peer:
                await answer(peer)
                for _ in range(2):
                    text = {"type": "text.append", "text": "x" * 60}
                    await peer.send(json.dumps(text))
                seen = []
                while "error" not in seen:
                    raw = await peer.recv()
                    if isinstance(raw, str):
                        message = json.loads(raw)
                        seen.append(message["type"])
                assert message["code"] == "quota_exceeded"
                assert 0 < message["retry_after_ms"] <= 60_000
                assert not message["fatal"]

    async def test_requests_a_minute(self, run: Run, keys: Keys) -> None:
        key = keys.add(requests_per_minute=2, scopes=("tokens",))
        async with run(**keys.settings) as running, httpx.AsyncClient() as http:
            url = running.url + "/v1/tokens"
            statuses = [(await http.post(url, headers=bearer(key))) for _ in range(3)]
            assert [each.status_code for each in statuses] == [200, 200, 429]
            assert int(statuses[2].headers["retry-after"]) > 0


class TestTokens:
    async def test_a_page_speaks_with_a_token(self, run: Run, keys: Keys) -> None:
        server = keys.add(scopes=("tokens",))
        async with run(**keys.settings) as running, httpx.AsyncClient() as http:
            url = running.url + "/v1/tokens?seconds=60"
            made = (await http.post(url, headers=bearer(server))).json()
            assert made["expires_in"] == 60
            token = made["token"]
            async with connect(stream(running, f"?token={token}")) as peer:
                assert (await answer(peer))["type"] == "session.started"
            # It does nothing but speak.
            assert (await http.post(url, headers=bearer(token))).status_code == 403
            keys.entries[0] = replace(keys.entries[0], revoked=True)
            keys.write()
            running.server.reload()
            assert (await refused(stream(running, f"?token={token}")))[0] == 401

    @pytest.mark.parametrize("seconds", ["0", "x", "-1", "1" * 400, "%00"])
    async def test_bad_lifetimes(self, run: Run, keys: Keys, seconds: str) -> None:
        key = keys.add(scopes=("tokens",))
        async with run(**keys.settings) as running, httpx.AsyncClient() as http:
            url = f"{running.url}/v1/tokens?seconds={seconds}"
            assert (await http.post(url, headers=bearer(key))).status_code == 400

    async def test_without_a_secret_there_are_none(
        self, run: Run, keys: Keys, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("VOXGATE_TOKEN_SECRET")
        key = keys.add(scopes=("tokens",))
        async with run(**keys.settings) as running, httpx.AsyncClient() as http:
            found = await http.post(running.url + "/v1/tokens", headers=bearer(key))
            assert (found.status_code, found.json()["code"]) == (404, "no_tokens")


class TestHttp:
    async def test_who_may_read_what(self, run: Run, keys: Keys) -> None:
        speak, metrics = keys.add(), keys.add(scopes=("metrics",))
        async with run(**keys.settings) as running, httpx.AsyncClient() as http:

            async def status(path: str, key: str = "") -> int:
                headers = bearer(key) if key else {}
                return (await http.get(running.url + path, headers=headers)).status_code

            for path in ("/", "/style.css", "/health", "/health/ready"):
                assert await status(path) == 200
            assert [await status("/metrics", key) for key in ("", speak, metrics)] == [
                401,
                403,
                200,
            ]
            assert [await status("/v1/models", key) for key in ("", metrics, speak)] == [
                401,
                403,
                200,
            ]
            # Nobody learns what there is without a key.
            assert await status("/no/such/path") == 401
            assert await status("//health/../metrics") == 401

    async def test_a_refusal_is_readable_by_every_client(self, run: Run, keys: Keys) -> None:
        keys.add()
        async with run(**keys.settings) as running, httpx.AsyncClient() as http:
            found = await http.get(running.url + "/v1/models")
            assert found.headers["www-authenticate"].startswith("Bearer")
            body = found.json()
            assert body["code"] == "unauthorized"
            assert body["error"]["code"] == body["detail"]["status"] == "invalid_api_key"
            assert "key" in body["hint"].lower()

    async def test_open_metrics(self, run: Run, keys: Keys) -> None:
        keys.add()
        async with run(**keys.settings, open_metrics=True) as running, httpx.AsyncClient() as http:
            assert (await http.get(running.url + "/metrics")).status_code == 200

    async def test_every_answer_is_safe_in_a_browser(self, run: Run) -> None:
        async with run() as running, httpx.AsyncClient() as http:
            for path in ("/", "/health", "/metrics", "/no/such/path", "/v1/models"):
                headers = (await http.get(running.url + path)).headers
                assert headers["x-content-type-options"] == "nosniff"
                assert headers["x-frame-options"] == "DENY"
                assert headers["referrer-policy"] == "no-referrer"
                assert "frame-ancestors 'none'" in headers["content-security-policy"]
                assert "server" not in headers


class TestReload:
    async def test_a_revoked_key_ends_its_sessions_and_no_others(
        self, run: Run, keys: Keys
    ) -> None:
        first, second = keys.add("ann"), keys.add("bob")
        async with run(**keys.settings) as running:
            async with (
                connect(stream(running), additional_headers=bearer(first)) as ann,
                connect(stream(running), additional_headers=bearer(second)) as bob,
            ):
                await answer(ann)
                await answer(bob)
                keys.entries[0] = replace(keys.entries[0], revoked=True)
                third = keys.add("eve")
                running.server.reload()
                with pytest.raises(ConnectionClosed) as closed:
                    await ann.recv()
                assert closed.value.rcvd is not None
                assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1008, "unauthorized")
                await bob.send('{"type": "ping"}')
                assert json.loads(await bob.recv())["type"] == "pong"
                async with connect(stream(running), additional_headers=bearer(third)) as eve:
                    assert (await answer(eve))["type"] == "session.started"

    async def test_a_file_that_changes_is_read_without_a_signal(self, run: Run, keys: Keys) -> None:
        keys.add()
        async with run(**keys.settings, reload_seconds=0.02) as running:
            late = keys.add("bob")
            async with asyncio.timeout(20):
                while True:
                    with contextlib.suppress(InvalidStatus):
                        async with connect(stream(running), additional_headers=bearer(late)):
                            break
                    await asyncio.sleep(0.02)

    async def test_a_broken_file_changes_nothing(
        self, run: Run, keys: Keys, caplog: pytest.LogCaptureFixture
    ) -> None:
        key = keys.add()
        async with run(**keys.settings) as running:
            keys.path.write_text("{")
            running.server.reload()
            assert "stays in force" in caplog.text
            async with connect(stream(running), additional_headers=bearer(key)) as peer:
                assert (await answer(peer))["type"] == "session.started"


async def test_no_credential_is_in_any_log_or_recording(
    run: Run, keys: Keys, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    key = keys.add(scopes=("speak", "tokens"))
    folder = tmp_path / "recordings"
    async with run(**keys.settings, record_dir=str(folder)) as running, httpx.AsyncClient() as http:
        made = await http.post(running.url + "/v1/tokens", headers=bearer(key))
        token = made.json()["token"]
        async with connect(stream(running, f"?token={token}&x=1")) as peer:
            await answer(peer)
        async with connect(stream(running), additional_headers=bearer(key)) as peer:
            await answer(peer)
        async with connect(stream(running)) as peer:
            await answer(peer, access_token=token)
        await http.get(running.url + f"/v1/models?token={key}")
        await running.quiet()
        await asyncio.sleep(0)
    ours = ("voxgate", "uvicorn", "starlette", "asyncio")
    own = [record for record in caplog.records if record.name.startswith(ours)]
    logged = "\n".join(record.getMessage() for record in own)
    recorded = "".join(path.read_text() for path in folder.glob("*.jsonl"))
    assert "x=1" in logged, "the handshake is logged"
    assert "session.start" in recorded
    for secret in (token, key, SECRET):
        assert secret not in logged
        assert secret not in recorded


async def test_a_lexicon_is_read_again(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "lexicon.json"
    path.write_text('{"voxgate": "first reading"}')
    async with run(lexicon_file=str(path)) as running:

        async def heard() -> str:
            running.engine.requests.clear()
            async with running.client() as client:
                async for _ in client.speak("This is voxgate."):
                    pass
            return " ".join(request.text for request in running.engine.requests)

        assert "first reading" in await heard()
        path.write_text('{"voxgate": "second reading"}')
        running.server.reload()
        assert "second reading" in await heard()
