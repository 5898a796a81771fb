"""The real nginx with deploy/nginx in front of two gateways, each a process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import signal
import ssl
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from processes import Gateway, free_port, gateway
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from gateway.client import Audio, GatewayError, VoiceClient
from gateway.protocol import TurnDone

pytestmark = pytest.mark.deploy
ROOT = Path(__file__).parents[2]
CERTIFICATES = ROOT / "tests" / "production" / "certificates"
TEXT = "One sentence that takes a while. And another one, just as long as that. "


@dataclass
class Site:
    """nginx at `url` with gateways behind it."""

    url: str
    tls: str
    gateways: list[Gateway]
    log: Path

    def server_of(self, route: str) -> int:
        """Which gateway nginx sent this route to last."""
        lines = [line for line in self.log.read_text().splitlines() if f"route={route} " in line]
        port = lines[-1].rsplit("upstream=", 1)[1].split(",")[-1].rsplit(":", 1)[1]
        return [each.port for each in self.gateways].index(int(port))


def configure(folder: Path, ports: list[int], port: int, tls: int) -> Path:
    """deploy/nginx with other ports and folders, and a log that says where requests went."""
    for name in ("nginx.conf", "locations.conf"):
        text = (ROOT / "deploy" / "nginx" / name).read_text()
        text = text.replace("/tmp/", f"{folder}/").replace("/dev/stderr", f"{folder}/error.log")
        (folder / name).write_text(text)
    servers = (ROOT / "deploy" / "nginx" / "upstream.conf").read_text()
    for number, each in enumerate(ports, 1):
        servers = servers.replace(f"gateway-{number}:8080", f"127.0.0.1:{each}")
    (folder / "upstream.conf").write_text(servers)
    (folder / "gateways.conf").write_text(
        "log_format where 'route=$arg_route upstream=$upstream_addr';\n"
        f"include {folder}/upstream.conf;\n"
        f"server {{ listen 127.0.0.1:{port}; access_log {folder}/where.log where;\n"
        f"  access_log {folder}/access.log voxgate; include locations.conf; }}\n"
        f"server {{ listen 127.0.0.1:{tls} ssl http2;\n"
        f"  ssl_certificate {CERTIFICATES}/server.pem;\n"
        f"  ssl_certificate_key {CERTIFICATES}/server.key; include locations.conf; }}\n"
    )
    return folder


@contextlib.asynccontextmanager
async def site(
    tools: Path,
    folder: Path,
    *options: str,
    environment: dict[str, str] | None = None,
    first: dict[str, str] | None = None,
) -> AsyncIterator[Site]:
    """`environment` of both gateways, `first` of the first one."""
    port, tls = free_port(), free_port()
    # Whom the scripted engine could not speak for in time is not the question here.
    options = ("--behind-proxy", "--capacity-share", "0", *options)
    environment = environment or {}
    async with (
        gateway(*options, environment={**environment, **(first or {})}) as one,
        gateway(*options, environment=environment) as two,
    ):
        configure(folder, [one.port, two.port], port, tls)
        command = [str(tools / "nginx"), "-p", str(folder), "-c", "nginx.conf"]
        check = await asyncio.create_subprocess_exec(*command, "-t", stderr=asyncio.subprocess.PIPE)
        _, said = await check.communicate()
        assert check.returncode == 0, said.decode()
        server = await asyncio.create_subprocess_exec(*command, "-g", "daemon off;")
        url = f"http://127.0.0.1:{port}"
        try:
            async with httpx.AsyncClient() as http:
                while True:
                    with contextlib.suppress(httpx.TransportError):
                        await http.get(url + "/health")
                        break
                    await asyncio.sleep(0.02)
            yield Site(url, f"https://localhost:{tls}", [one, two], folder / "where.log")
        finally:
            server.terminate()
            await server.wait()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # nginx's workers are another user.
    place = tmp_path_factory.mktemp("nginx")
    for each in (place, *place.parents):
        if each == Path("/tmp") or each == Path("/"):
            break
        each.chmod(0o755)
    return place


def fresh(folder: Path, name: str) -> Path:
    place = folder / name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(mode=0o777)
    return place


async def speak(url: str, text: str = TEXT) -> tuple[list[int], TurnDone | None, int]:
    """Sequence numbers heard, the end of the turn, and how often it was resumed."""
    sequences: list[int] = []
    done = None
    async with VoiceClient(url, reconnect=True) as client:
        async for event in client.speak(text):
            if isinstance(event, Audio):
                sequences.append(event.sequence)
            elif isinstance(event, TurnDone):
                done = event
        return sequences, done, client.link.resumes


async def speak_somewhere(url: str) -> tuple[list[int], TurnDone | None, int]:
    """As a client does that was sent away before its text was taken: say it again elsewhere."""
    while True:
        try:
            return await speak(url)
        except GatewayError as failure:
            assert failure.code in ("session_ending", "draining")


async def test_sessions_pages_and_what_stays_inside(tools: Path, folder: Path) -> None:
    async with site(tools, fresh(folder, "plain")) as place:
        sequences, done, _ = await speak(place.url)
        assert done is not None
        assert sequences == list(range(len(sequences)))
        context = ssl.create_default_context(cafile=str(CERTIFICATES / "ca.pem"))
        async with httpx.AsyncClient(verify=context) as http:
            page = await http.get(place.tls + "/")
            assert page.status_code == 200
            assert page.headers["content-security-policy"]
            assert page.headers["strict-transport-security"]
            assert "server" not in page.headers or "1." not in page.headers["server"]
            assert (await http.get(place.tls + "/metrics")).status_code == 404
            large = await http.post(place.tls + "/tts", content=b"x" * 5_000_000)
            assert large.status_code == 413
        async with connect(place.tls.replace("https", "wss") + "/v1/stream", ssl=context) as peer:
            await peer.send('{"type": "session.start"}')
            assert json.loads(await peer.recv())["type"] == "session.started"
        # A token in the URL is not written down.
        with contextlib.suppress(InvalidStatus):
            async with connect(place.url.replace("http", "ws") + "/v1/stream?token=vt_secret"):
                pass
        await asyncio.sleep(0.1)
        logged = (folder / "plain" / "access.log").read_text()
        assert "/v1/stream" in logged
        assert "vt_secret" not in logged
        # One address has 64 connections, and no more.
        held = []
        statuses = set()
        for _ in range(70):
            try:
                stream = place.url.replace("http", "ws") + "/v1/stream"
                held.append(await connect(stream))
            except InvalidStatus as refused:
                statuses.add(refused.response.status_code)
        assert statuses == {429}
        assert len(held) == 64
        await asyncio.gather(*(peer.close() for peer in held))


SMUGGLED = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


async def test_nothing_is_smuggled_past_nginx(tools: Path, folder: Path) -> None:
    """What two servers could read as one request and as two: /metrics, which nginx gives nobody."""
    post = b"POST /tts HTTP/1.1\r\nHost: x\r\n"
    upgrade = (
        b"GET /v1/stream HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: %b\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    length = str(len(SMUGGLED)).encode()
    tries = {
        "length and chunks": post
        + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "two lengths": post + b"Content-Length: 0\r\nContent-Length: " + length + b"\r\n\r\n",
        "disguised chunks": post + b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
        "chunks after a line": post + b"Transfer-Encoding: identity\r\n , chunked\r\n\r\n0\r\n\r\n",
        "a length with a sign": post + b"Content-Length: +0\r\n\r\n",
        "an upgrade that fails": upgrade % b"99",
        "an upgrade with a body": upgrade.replace(b"Sec-WebSocket-V", b"Content-Length: 0\r\nX-V")
        % b"1",
        "a get with a body": b"GET /health HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    }
    async with site(tools, fresh(folder, "smuggle")) as place:
        port = int(place.url.rsplit(":", 1)[1])
        for what, request in tries.items():
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request + SMUGGLED)
            found = b""
            with contextlib.suppress(TimeoutError, ConnectionError):
                async with asyncio.timeout(1):
                    while more := await reader.read(65536):
                        found += more
            writer.transport.abort()
            assert b"voxgate_sessions" not in found, what
            assert found.startswith(b"HTTP/1.1 ") or not found, what


async def test_a_session_is_resumed_where_it_lives(tools: Path, folder: Path) -> None:
    async with site(tools, fresh(folder, "resume")) as place:
        used = set()
        for number in range(8):
            url = place.url.replace("http", "ws") + f"/v1/stream?route=r{number}"
            async with connect(url) as peer:
                await peer.send('{"type": "session.start", "resume": true}')
                token = json.loads(await peer.recv())["token"]
                peer.transport.abort()
            async with connect(url) as peer:
                request = {"type": "session.resume", "token": token, "received": 1}
                await peer.send(json.dumps(request))
                assert json.loads(await peer.recv())["type"] == "session.resumed"
                await peer.send('{"type": "session.end"}')
                await peer.wait_closed()
            await asyncio.sleep(0.05)
            used.add(place.server_of(f"r{number}"))
        assert used == {0, 1}, "both gateways serve"


async def test_a_gateway_that_drains_gets_nobody_and_loses_nobody(
    tools: Path, folder: Path
) -> None:
    async with site(tools, fresh(folder, "drain")) as place:
        talks = [asyncio.create_task(speak_somewhere(place.url)) for _ in range(8)]
        while await place.gateways[0].status("/health") == 200:
            async with httpx.AsyncClient() as http:
                counts = [
                    (await http.get(each.url + "/health")).json()["sessions"]
                    for each in place.gateways
                ]
            if sum(counts) == 8 and all(counts):
                break
            await asyncio.sleep(0.02)
        place.gateways[0].signal(signal.SIGTERM)
        late = [asyncio.create_task(speak_somewhere(place.url)) for _ in range(8)]
        for sequences, done, _ in await asyncio.gather(*talks, *late):
            assert done is not None
            assert done.failed == 0
            assert sequences == list(range(done.packets))
        assert await place.gateways[0].process.wait() == 0


async def test_a_gateway_that_is_killed_harms_only_its_own(tools: Path, folder: Path) -> None:
    """Sessions of the other one hear nothing of it; those of the dead one get a clear code."""
    async with site(tools, fresh(folder, "kill")) as place:

        async def one(number: int) -> tuple[int, str, list[int]]:
            route = f"k{number}"
            url = f"{place.url}/v1/stream?route={route}"
            try:
                sequences, done, _ = await speak(url)
                outcome = "done" if done is not None else "nothing"
            except Exception as failure:
                sequences, outcome = [], getattr(failure, "code", repr(failure))
            return number, outcome, sequences

        talks = [asyncio.create_task(one(number)) for number in range(12)]
        await asyncio.sleep(1.0)
        async with httpx.AsyncClient() as http:
            dying = (await http.get(place.gateways[0].url + "/health")).json()["sessions"]
        place.gateways[0].signal(signal.SIGKILL)
        outcomes = await asyncio.gather(*talks)
        lost = [outcome for _, outcome, _ in outcomes if outcome != "done"]
        assert len(lost) == dying
        assert set(lost) == {"unknown_session"}, "resuming elsewhere says so at once"
        for _, outcome, sequences in outcomes:
            if outcome == "done":
                assert sequences == list(range(len(sequences)))
        # Whoever comes now is served by the other one.
        for _, done, _ in await asyncio.gather(*(speak(place.url, "A word.") for _ in range(4))):
            assert done is not None


@contextlib.asynccontextmanager
async def watched(tools: Path, here: Path, place: Site) -> AsyncIterator[Path]:
    """The breaker at work; the file it writes."""
    upstream = here / "upstream.conf"
    breaker = await asyncio.create_subprocess_exec(
        sys.executable,
        str(ROOT / "deploy" / "nginx" / "breaker.py"),
        *("--upstream", str(upstream)),
        *("--reload", f"{tools / 'nginx'} -p {here} -c nginx.conf -s reload"),
        *("--seconds", "0.2", "--timeout", "3"),
        *(each.url for each in place.gateways),
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield upstream
    finally:
        breaker.terminate()
        await breaker.wait()


async def taken_out(upstream: Path, number: int, *, out: bool, seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while True:
            [*_, one, two, _] = upstream.read_text().splitlines()
            if [one, two][number].endswith("down;") is out:
                return
            await asyncio.sleep(0.05)


async def test_a_gateway_that_hangs_is_taken_out_and_let_back(tools: Path, folder: Path) -> None:
    """nginx connects to a stopped process and waits; the breaker asks whether it speaks."""
    here = fresh(folder, "hang")
    async with (
        site(tools, here, "--ready-cache-seconds", "0") as place,
        watched(tools, here, place) as upstream,
    ):
        # Sessions that are there hear nothing of it.
        talk = asyncio.create_task(speak(place.gateways[1].url, TEXT * 2))
        place.gateways[0].signal(signal.SIGSTOP)
        await taken_out(upstream, 0, out=True)
        async with asyncio.timeout(30):
            # nginx takes a moment to read what was written.
            await asyncio.sleep(1)
            for _ in range(6):
                _, done, _ = await speak(place.url, "A word.")
                assert done is not None
        place.gateways[0].signal(signal.SIGCONT)
        await taken_out(upstream, 0, out=False)
        sequences, done, _ = await talk
        assert done is not None
        assert sequences == list(range(done.packets))


async def test_a_gateway_whose_pieces_fail_is_taken_out_and_let_back(
    tools: Path, folder: Path
) -> None:
    """Its word of readiness is spoken all the while: only the share of its failures tells."""
    here = fresh(folder, "fail")
    fault = here / "fault"
    options = ("--ready-cache-seconds", "0", "--piece-retry-seconds", "0")
    faulty = {"VOXGATE_SCRIPTED_FAULT": str(fault)}
    async with (
        site(tools, here, *options, environment=faulty) as place,
        watched(tools, here, place) as upstream,
        httpx.AsyncClient() as http,
    ):
        fault.touch()
        for _ in range(40):
            # nginx itself asks the other one, which is none the better for it here.
            answer = await http.post(place.gateways[0].url + "/tts", json={"text": "A word."})
            assert answer.status_code == 500
        await taken_out(upstream, 0, out=True)
        fault.unlink()
        used = set()
        for number in range(6):
            _, done, _ = await speak(f"{place.url}/v1/stream?route=f{number}", "A word.")
            assert done is not None
            assert done.failed == 0
            used.add(place.server_of(f"f{number}"))
        assert used == {1}, "nobody comes to the one that failed"
        await taken_out(upstream, 0, out=False, seconds=90)


async def test_a_request_that_meets_a_fault_is_answered_by_the_other_one(
    tools: Path, folder: Path
) -> None:
    here = fresh(folder, "passive")
    fault = here / "fault"
    here.joinpath("fault").touch()
    async with site(
        tools, here, "--piece-retry-seconds", "0", first={"VOXGATE_SCRIPTED_FAULT": str(fault)}
    ) as place:
        async with httpx.AsyncClient() as http:
            for _ in range(12):
                answer = await http.post(place.url + "/tts", json={"text": "A word."})
                assert answer.status_code == 200
        log = place.log.read_text().splitlines()
        asked = [line for line in log if f":{place.gateways[0].port}" in line]
        assert 0 < len(asked) <= 4, "three faults, and nginx leaves it alone"
