"""Tries to get at a running gateway what one should not.

    python tests/production/attack.py [--markdown docs/attackers-notebook.md]

Each try is one line of the notebook: what was sent, what came back, whether it held. The
gateway is a process with keys, recordings and a scripted engine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import ssl
import statistics
import struct
import sys
import tempfile
import time
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
from chaos_stage import frame
from processes import Gateway, gateway
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from gateway.keys import KeyRing, make_key, write_keys

CERTIFICATES = Path(__file__).parent / "certificates"


class Place:
    """The gateway under attack."""

    def __init__(self, server: Gateway, key: str, folder: Path, more: dict[str, str]) -> None:
        """`more`: keys with less rights, by name."""
        self.server, self.key, self.folder, self.more = server, key, folder, more
        self.stream = server.url.replace("http", "ws") + "/v1/stream"
        self.bearer = {"authorization": f"Bearer {key}"}

    async def raw(self, *parts: bytes, seconds: float = 8.0) -> bytes:
        """What comes back until the server closes, or time is up."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        found = b""
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(seconds):
                for part in parts:
                    writer.write(part)
                    await asyncio.sleep(0.05)
                while more := await reader.read(65536):
                    found += more
        writer.transport.abort()
        return found

    async def handshake(self, **options: Any) -> int:
        try:
            async with connect(self.stream, **options):
                return 101
        except InvalidStatus as refused:
            return refused.response.status_code

    async def say(self, *messages: Any) -> list[dict[str, Any]]:
        """Answers to raw messages in a session of its own."""
        found: list[dict[str, Any]] = []
        async with connect(self.stream, additional_headers=self.bearer) as peer:
            await peer.send('{"type":"session.start"}')
            await peer.recv()
            with contextlib.suppress(ConnectionClosed, TimeoutError):
                for message in messages:
                    await peer.send(
                        message if isinstance(message, str | bytes) else json.dumps(message)
                    )
                async with asyncio.timeout(0.5):
                    while True:
                        raw = await peer.recv()
                        if isinstance(raw, str):
                            found.append(json.loads(raw))
        return found

    def memory(self) -> float:
        return psutil.Process(self.server.process.pid).memory_info().rss / 2**20


Try = Callable[[Place], Awaitable[tuple[bool, str]]]
TRIES: list[tuple[str, str, Try]] = []


def attempt(area: str, what: str) -> Callable[[Try], Try]:
    def register(function: Try) -> Try:
        TRIES.append((area, what, function))
        return function

    return register


# -- getting in -----------------------------------------------------------------------------------


@attempt(
    "Keys",
    "No key, nonsense, another server's key, one with a changed letter, a known id "
    "with another secret",
)
async def wrong_keys(p: Place) -> tuple[bool, str]:
    other, _ = make_key("x")
    tries = [
        "",
        "x",
        other,
        p.key[:-1] + ("A" if p.key[-1] != "A" else "B"),
        p.key.rsplit("_", 1)[0] + "_" + "A" * 43,
    ]
    statuses = [
        await p.handshake(additional_headers={"authorization": f"Bearer {k}"}) for k in tries[1:]
    ]
    async with httpx.AsyncClient() as http:
        statuses += [(await http.get(p.server.url + "/v1/models")).status_code]
    return set(statuses) == {401}, f"{len(statuses)} times 401"


@attempt(
    "Keys",
    "Guessing by time: 2,000 requests with an unknown id against 2,000 with a known "
    "id and a wrong secret",
)
async def timing(p: Place) -> tuple[bool, str]:
    from gateway.keys import read_keys

    ring = read_keys(p.folder / "keys.json")
    known = p.key.rsplit("_", 1)[0] + "_" + "A" * 43
    unknown = f"vg_{'0' * 12}_{'A' * 43}"
    took: dict[str, list[float]] = {known: [], unknown: []}
    for _ in range(2000):
        for key, times in took.items():
            begun = time.perf_counter_ns()
            ring.find(key, 0.0)
            times.append((time.perf_counter_ns() - begun) / 1000)
    a, b = (statistics.median(each) for each in took.values())
    return abs(a - b) < 2.0, f"medians {a:.2f} and {b:.2f} µs; the network alone varies by more"


@attempt(
    "Tokens", "A token with another expiry and the old signature; none; `alg: none`; a key as token"
)
async def forged(p: Place) -> tuple[bool, str]:
    import base64

    async with httpx.AsyncClient() as http:
        made = await http.post(p.server.url + "/v1/tokens", headers=p.bearer)
    token = made.json()["token"]
    payload, _, signature = token[3:].partition(".")
    body = json.loads(base64.urlsafe_b64decode(payload + "=="))
    later = (
        base64.urlsafe_b64encode(json.dumps({**body, "e": body["e"] + 10**6}).encode())
        .rstrip(b"=")
        .decode()
    )
    tries = [
        f"vt_{later}.{signature}",
        f"vt_{payload}.",
        f"vt_{payload}",
        "vt_.",
        f"vt_{payload}.{signature}x",
        "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.",
    ]
    statuses = [
        await p.handshake(additional_headers={"authorization": f"Bearer {each}"}) for each in tries
    ]
    good = await p.handshake(additional_headers={"authorization": f"Bearer {token}"})
    return set(statuses) == {401} and good == 101, f"{len(tries)} times 401; the real one opens"


@attempt("Tokens", "Asking for tokens and metrics with a token that only speaks")
async def more_rights(p: Place) -> tuple[bool, str]:
    async with httpx.AsyncClient() as http:
        made = await http.post(p.server.url + "/v1/tokens", headers=p.bearer)
        token = {"authorization": f"Bearer {made.json()['token']}"}
        statuses = [
            (await http.post(p.server.url + "/v1/tokens", headers=token)).status_code,
            (await http.get(p.server.url + "/metrics", headers=token)).status_code,
        ]
    return set(statuses) == {403}, f"{statuses}"


@attempt(
    "Scopes",
    "With a key for metrics alone: a session, speech over HTTP, a token; with one that speaks: "
    "metrics",
)
async def scopes(p: Place) -> tuple[bool, str]:
    other = {"authorization": f"Bearer {p.more['metrics']}"}
    found = [await p.handshake(additional_headers=other)]
    async with httpx.AsyncClient(base_url=p.server.url) as http:
        found.append((await http.post("/tts", headers=other, json={"text": "x"})).status_code)
        found.append((await http.post("/v1/tokens", headers=other)).status_code)
        found.append((await http.get("/metrics", headers=p.bearer)).status_code)
        good = (await http.get("/metrics", headers=other)).status_code
    return set(found) == {403} and good == 200, ", ".join(map(str, found))


@attempt(
    "Quotas",
    "A key with 2 sessions opens 6 at once, half of them with a token of its own; one with "
    "200 characters a minute sends 2,000; one with 5 requests a minute makes 20",
)
async def quotas(p: Place) -> tuple[bool, str]:
    small = {"authorization": f"Bearer {p.more['small']}"}
    async with httpx.AsyncClient(base_url=p.server.url) as http:
        token = (await http.post("/v1/tokens", headers=small)).json()["token"]
        held: list[Any] = []
        refused = []
        for shown in (small, {"authorization": f"Bearer {token}"}) * 3:
            try:
                held.append(await connect(p.stream, additional_headers=shown))
            except InvalidStatus as answer:
                refused.append(answer.response.status_code)
        await held[0].send('{"type":"session.start"}')
        for _ in range(20):
            await held[0].send(json.dumps({"type": "text.append", "text": "word " * 20}))
        codes, taken = [], 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                async for raw in held[0]:
                    message = json.loads(raw) if isinstance(raw, str) else {}
                    if message.get("type") == "error":
                        codes.append(message["code"])
        taken = 20 - len(codes)
        await asyncio.gather(*(each.close() for each in held))
        few = {"authorization": f"Bearer {p.more['few']}"}
        statuses = [(await http.get("/v1/models", headers=few)).status_code for _ in range(20)]
    good = len(held) == 2 and set(refused) == {429} and set(codes) == {"quota_exceeded"}
    return (
        good and taken == 2 and statuses.count(200) == 5 and statuses.count(429) == 15,
        f"{len(held)} sessions and {len(refused)} times 429; {taken * 100} characters taken, then "
        f"quota_exceeded; 5 answers and {statuses.count(429)} times 429",
    )


@attempt(
    "TLS",
    "Where client certificates are asked for: none, a self-signed one, one that names the right "
    "authority but is not signed by it; TLS 1.0 and 1.1; plain HTTP",
)
async def mutual(p: Place) -> tuple[bool, str]:
    for name, subject in (("self", "/CN=client"), ("forged", "/CN=Voxgate test authority")):
        # No authority's name but the last is that of who signed it.
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
        files = ["-keyout", f"{p.folder}/{name}.key", "-out", f"{p.folder}/{name}.pem"]
        made = await asyncio.create_subprocess_exec(
            *command, *files, "-subj", subject, stderr=asyncio.subprocess.DEVNULL
        )
        assert await made.wait() == 0
    key = p.folder / "server.key"
    key.touch(mode=0o600)
    key.write_bytes((CERTIFICATES / "server.key").read_bytes())
    options = ["--tls-cert", f"{CERTIFICATES}/server.pem", "--tls-key", str(key)]
    options += ["--tls-client-ca", f"{CERTIFICATES}/ca.pem", "--capacity-share", "0"]

    async def asks(port: int, certificate: Path | None, version: ssl.TLSVersion | None) -> bool:
        context = ssl.create_default_context(cafile=f"{CERTIFICATES}/ca.pem")
        if version is not None:
            context.minimum_version = context.maximum_version = version
            context.set_ciphers("DEFAULT@SECLEVEL=0")
        if certificate is not None:
            context.load_cert_chain(certificate, certificate.with_suffix(".key"))
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("localhost", port, ssl=context)
            writer.write(b"GET /health HTTP/1.0\r\n\r\n")
            answer = await reader.read()
            writer.close()
            return answer.startswith(b"HTTP/1.1 200")
        return False

    async with gateway(*options, wait=False, quiet=True) as guarded:
        right = CERTIFICATES / "client.pem"
        async with asyncio.timeout(30):
            while not await asks(guarded.port, right, None):
                await asyncio.sleep(0.1)
        old = [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1]
        found = [
            await asks(guarded.port, None, None),
            await asks(guarded.port, p.folder / "self.pem", None),
            await asks(guarded.port, p.folder / "forged.pem", None),
            *[await asks(guarded.port, right, version) for version in old],
            await guarded.status("/health") != 0,
        ]
        good = await asks(guarded.port, right, None)
    return not any(found) and good, f"{len(found)} times refused in the handshake"


@attempt(
    "Paths",
    "`/health/../metrics`, `//metrics`, `/metrics/`, `/%6detrics`, `/health%00`, `/METRICS`",
)
async def odd_paths(p: Place) -> tuple[bool, str]:
    found = []
    for path in (
        "/health/../metrics",
        "//metrics",
        "/metrics/",
        "/%6detrics",
        "/health%00",
        "/METRICS",
        "/health/ready/../../metrics",
    ):
        answer = await p.raw(f"GET {path} HTTP/1.0\r\nHost: x\r\n\r\n".encode())
        found.append(answer[9:12].decode())
        if b"voxgate_sessions" in answer:
            return False, f"{path} showed the metrics"
    return "200" not in found, ", ".join(found)


@attempt(
    "Paths",
    "`/../../../etc/passwd`, `/%2e%2e/%2e%2e/etc/passwd`, `/..%5c..%5cetc/passwd`, "
    "`/app/%2e%2e/__init__.py`",
)
async def traversal(p: Place) -> tuple[bool, str]:
    found = []
    for path in (
        "/../../../etc/passwd",
        "/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "/..%5c..%5cetc/passwd",
        "/app/%2e%2e/__init__.py",
        "/app//etc/passwd",
    ):
        head = f"GET {path} HTTP/1.0\r\nHost: x\r\nAuthorization: Bearer {p.key}\r\n\r\n"
        answer = await p.raw(head.encode())
        found.append(answer[9:12].decode())
        if b"root:" in answer or b"import" in answer:
            return False, f"{path} was served"
    return set(found) <= {"404", "400"}, ", ".join(found)


@attempt(
    "Sessions",
    "Captions and sessions of others: guessed names, `../`, wildcards; resuming with "
    "a guessed token",
)
async def others(p: Place) -> tuple[bool, str]:
    statuses = set()
    async with httpx.AsyncClient() as http:
        for name in ("a", "..", "*", "%2e%2e%2fkeys", "0" * 12):
            answer = await http.get(
                f"{p.server.url}/v1/sessions/{name}/captions.vtt", headers=p.bearer
            )
            statuses.add(answer.status_code)
    async with connect(p.stream, additional_headers=p.bearer) as peer:
        await peer.send('{"type":"session.resume","token":"guess","received":0}')
        code = json.loads(await peer.recv())["code"]
    return statuses == {
        404
    } and code == "unknown_session", f"404, {code}; names have 72 random bits, tokens 192"


@attempt(
    "Origin", "A page of https://evil.example, of `null`, of a look-alike host, of another port"
)
async def origins(p: Place) -> tuple[bool, str]:
    port = p.server.port
    pages = [
        "https://evil.example",
        "null",
        f"http://127.0.0.1.evil.example:{port}",
        f"http://127.0.0.1:{port + 1}",
        "file://",
    ]
    statuses = [await p.handshake(origin=page, additional_headers=p.bearer) for page in pages]
    return set(statuses) == {403}, f"{len(pages)} times 403"


# -- breaking HTTP --------------------------------------------------------------------------------


@attempt(
    "Smuggling",
    "Two lengths; length beside chunks; `xchunked`; `chunked` after a space; bare "
    "LF; folded header; NUL",
)
async def smuggling(p: Place) -> tuple[bool, str]:
    post = b"POST /tts HTTP/1.1\r\nHost: x\r\n"
    hidden = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    tries = [
        post + b"Content-Length: 5\r\nContent-Length: 60\r\n\r\nhello" + hidden,
        post + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
        post + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + hidden,
        post + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + hidden,
        b"GET / HTTP/1.1\nHost: x\n\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n Folded: y\r\n\r\n",
        b"GET / HTTP/1.1\r\nHo\0st: x\r\n\r\n",
    ]
    found = [await p.raw(each, seconds=2.0) for each in tries]
    codes = [answer[9:12].decode() for answer in found]
    answers = [answer.count(b"HTTP/1.1") for answer in found]
    return not any(b'"status":"ok"' in each for each in found) and max(answers) == 1, ", ".join(
        codes
    )


@attempt("Splitting", "CR LF in a path, a query and a header value, to write headers of the answer")
async def splitting(p: Place) -> tuple[bool, str]:
    found = [
        await p.raw(b"GET /x%0d%0aX-Evil:%201 HTTP/1.0\r\nHost: x\r\n\r\n"),
        await p.raw(b"GET /health?a=%0d%0aX-Evil:%201 HTTP/1.0\r\nHost: x\r\n\r\n"),
    ]
    return not any(b"X-Evil: 1" in each for each in found), "nothing of it in the answer's head"


@attempt("Slow loris", "A head and a body at one byte a second")
async def slow(p: Place) -> tuple[bool, str]:
    async def drip(head: bytes) -> float:
        begun = time.monotonic()
        reader, writer = await asyncio.open_connection("127.0.0.1", p.server.port)
        writer.write(head)
        with contextlib.suppress(ConnectionError):
            while not reader.at_eof() and time.monotonic() - begun < 40:
                writer.write(b"a")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(4096), 1)
        writer.transport.abort()
        return time.monotonic() - begun

    key = f"Authorization: Bearer {p.key}\r\n".encode()
    took = await asyncio.gather(
        drip(b"GET / HTTP/1.1\r\nX: "),
        drip(b"POST /tts HTTP/1.1\r\nHost: x\r\n" + key + b"Content-Length: 100000\r\n\r\n"),
    )
    return max(
        took
    ) < 15, f"closed after {', '.join(f'{each:.0f} s' for each in took)} (limits set to 3 s)"


@attempt("Floods", "A head of 100 MB; 100,000 headers; a chunk extension and trailers without end")
async def long_heads(p: Place) -> tuple[bool, str]:
    before = p.memory()
    chunked = b"POST /tts HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    found = [
        await p.raw(b"GET / HTTP/1.1\r\nX: ", b"a" * 100_000_000),
        await p.raw(b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 100_000),
        await p.raw(chunked, b"1;" + b"x" * 1_000_000),
        await p.raw(chunked, b"0\r\n" + b"T: a\r\n" * 100_000),
    ]
    grown = p.memory() - before
    # The answer can be lost when the server closes on what is still being sent.
    codes = [answer[9:12].decode() or "closed" for answer in found]
    return grown < 30, f"{', '.join(codes)}; memory {grown:+.0f} MiB"


@attempt("Floods", "A body of 1 GB by its length; one of 100 MB in chunks")
async def long_bodies(p: Place) -> tuple[bool, str]:
    before = p.memory()
    head = f"POST /tts HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {p.key}\r\n".encode()
    chunk = b"f4240\r\n" + b" " * 1_000_000 + b"\r\n"
    found = [
        await p.raw(head + b"Content-Length: 1000000000\r\n\r\n"),
        await p.raw(head + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 100),
    ]
    grown = p.memory() - before
    return (
        grown < 40,
        f"{', '.join(a[9:12].decode() or 'closed' for a in found)}; memory {grown:+.0f} MiB",
    )


@attempt(
    "Bombs",
    "A deflated body that inflates to 100 MB; `permessage-deflate` offered and a "
    "compressed frame sent",
)
async def bombs(p: Place) -> tuple[bool, str]:
    before = p.memory()
    body = zlib.compress(b" " * 100_000_000, 9)
    async with httpx.AsyncClient() as http:
        headers = {**p.bearer, "content-encoding": "gzip", "content-type": "application/json"}
        status = (await http.post(p.server.url + "/tts", headers=headers, content=body)).status_code
    upgrade = (
        "GET /v1/stream HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Extensions: permessage-deflate\r\nAuthorization: Bearer {p.key}\r\n\r\n"
    ).encode()
    squeezed = bytearray(frame("x" * 40))
    squeezed[0] |= 0x40
    answer = await p.raw(upgrade, bytes(squeezed))
    agreed = b"permessage-deflate" in answer
    grown = p.memory() - before
    return (
        not agreed and 400 <= status < 500 and grown < 20,
        f"{status}; not agreed on, closed with 1002; memory {grown:+.0f} MiB",
    )


# -- breaking the WebSocket -----------------------------------------------------------------------


@attempt(
    "Frames",
    "A frame of 2^63 bytes; 5,000 empty fragments; unmasked; reserved bits and "
    "opcodes; bad UTF-8; half a close",
)
async def frames(p: Place) -> tuple[bool, str]:
    upgrade = (
        "GET /v1/stream HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
        f"Authorization: Bearer {p.key}\r\n\r\n"
    ).encode()
    mask = b"\0\0\0\0"
    tries = [
        b"\x81\xff" + struct.pack("!Q", 2**63 - 1) + mask,
        b"\x01\x81" + mask + b"x" + (b"\x00\x80" + mask) * 5000,
        b"\x81\x05hello",
        b"\xf1\x80" + mask,
        b"\x83\x80" + mask,
        b"\x81\x82" + mask + b"\xff\xfe",
        b"\x88\x81" + mask + b"\x03",
    ]
    found = [await p.raw(upgrade, each, seconds=5.0) for each in tries]
    codes = []
    for answer in found:
        body = answer.partition(b"\r\n\r\n")[2]
        at = body.rfind(b"\x88")
        codes.append(str(int.from_bytes(body[at + 2 : at + 4], "big")) if at >= 0 else "closed")
    return all(code != "closed" for code in codes), ", ".join(codes)


@attempt("Frames", "100,000 pings whose pongs are not read")
async def pings(p: Place) -> tuple[bool, str]:
    before = p.memory()
    async with connect(p.stream, additional_headers=p.bearer, max_queue=1) as peer:
        raw = peer.transport
        raw.pause_reading()
        ping = b"\x89\xfd" + b"\0\0\0\0" + os.urandom(125)
        with contextlib.suppress(Exception):
            for _ in range(1000):
                raw.write(ping * 100)
                await asyncio.sleep(0)
                if raw.is_closing():
                    break
        await asyncio.sleep(1)
        grown = p.memory() - before
        raw.abort()
    return grown < 10, f"closed; memory {grown:+.1f} MiB"


@attempt(
    "Messages",
    "Deep nesting (100,000 brackets), huge numbers, NaN, duplicate and prototype "
    "keys, lone surrogates, arrays, null",
)
async def messages(p: Place) -> tuple[bool, str]:
    found = await p.say(
        "[" * 100_000,
        '{"type":"text.append","text":' + "[" * 5000 + "]" * 5000 + "}",
        '{"type":"session.update","speed":1e999}',
        '{"type":"session.update","speed":NaN}',
        '{"type":"session.update","seed":' + "9" * 5000 + "}",
        '{"type":"text.append","text":1,"text":"\\ud800"}',
        '{"__proto__":{"x":1},"constructor":1,"type":"nothing"}',
        "null",
        "[]",
        '""',
        b"\x00\x01",
    )
    codes = {each.get("code") for each in found if each["type"] == "error"}
    alive = await p.server.status("/health") == 200
    known = {"bad_json", "bad_field", "unknown_type", "binary_not_accepted"}
    return alive and codes <= known and len(found) >= 10, ", ".join(sorted(str(c) for c in codes))


@attempt(
    "Text",
    "`$(id)`, `{{7*7}}`, `%s%n`, `../../etc/passwd`, `<script>`, SQL, ANSI escapes, "
    "7,000 combining marks, right-to-left overrides",
)
async def texts(p: Place) -> tuple[bool, str]:
    found = await p.say(
        *(
            {"type": "text.append", "text": text + ". "}
            for text in (
                "$(id) `id`",
                "{{7*7}} ${7*7}",
                "%s%n%x",
                "../../../../etc/passwd",
                "<script>alert(1)</script>",
                "'; DROP TABLE x; --",
                "\x1b]0;evil\x07\x1b[31m",
                "a" + "\u0301" * 7000,
                "\u202e\u2066abc\0def",
            )
        ),
        {"type": "turn.end"},
    )
    said = " ".join(each.get("spoken", "") for each in found if each["type"] == "caption")
    wrong = "uid=" in said or " 49 " in f" {said} " or "root:" in said
    faults = [each for each in found if each.get("code") == "internal"]
    return not wrong and not faults, "spoken or left out as text; no fault"


@attempt("Text", "1.5 MB of text as fast as it goes; 500 turns; 500 flushes")
async def much(p: Place) -> tuple[bool, str]:
    before = p.memory()
    found = await p.say(
        *({"type": "text.append", "text": "word " * 1500} for _ in range(200)),
        *({"type": "turn.start"} for _ in range(500)),
        *({"type": "text.flush"} for _ in range(500)),
    )
    codes = {each.get("code") for each in found if each["type"] == "error"}
    grown = p.memory() - before
    limits = {
        "backlog_full",
        "text_rate",
        "too_many_turns",
        "too_many_flushes",
        "turn_too_long",
        "quota_exceeded",
    }
    return codes <= limits and bool(
        codes
    ) and grown < 60, f"{', '.join(sorted(str(c) for c in codes))}; memory {grown:+.0f} MiB"


# -- what it tells --------------------------------------------------------------------------------


@attempt(
    "Leaks",
    "Keys, tokens (in the URL, a subprotocol, the first message) and text in logs at level debug, "
    "in recordings, in answers and errors",
)
async def leaks(p: Place) -> tuple[bool, str]:
    async with httpx.AsyncClient() as http:
        made = await http.post(p.server.url + "/v1/tokens", headers=p.bearer)
        token = made.json()["token"]
        await http.get(f"{p.server.url}/v1/models?token={token}")
    async with connect(f"{p.stream}?token={token}") as peer:
        await peer.send(json.dumps({"type": "session.start", "access_token": token}))
        await peer.recv()
        await peer.send('{"type":"text.append","text":"My secret is marzipan. "}')
        await peer.recv()
    protocols = [Subprotocol("voxgate.v1"), Subprotocol(f"voxgate.token.{token}")]
    async with connect(p.stream, subprotocols=protocols) as peer:
        shown = str(peer.subprotocol)
        await peer.send('{"type":"session.start"}')
        await peer.recv()
    async with httpx.AsyncClient() as http:
        wrong = await http.get(f"{p.server.url}/v1/models", headers={"xi-api-key": p.key + "x"})
        page = await http.get(p.server.url + "/v1/models", headers=p.bearer)
    told = shown + wrong.text + page.text + str(wrong.headers) + str(page.headers)
    await asyncio.sleep(0.5)
    log = told + (p.folder / "log").read_text()
    recorded = "".join(path.read_text() for path in (p.folder / "recordings").glob("*.jsonl"))
    secrets = [
        name for name, value in (("key", p.key), ("token", token)) if value in log + recorded
    ]
    text = "marzipan" in log
    return not secrets and not text and len(log) > 1000, f"none, in {len(log):,} characters of log"


@attempt("Leaks", "What an answer tells of the server: version, paths, tracebacks")
async def told(p: Place) -> tuple[bool, str]:
    found = b"".join(
        [
            await p.raw(b"GET / HTTP/1.0\r\nHost: x\r\n\r\n"),
            await p.raw(b"NONSENSE\r\n\r\n"),
            await p.raw(
                f"POST /tts HTTP/1.0\r\nAuthorization: Bearer {p.key}\r\n".encode()
                + b"Content-Length: 3\r\n\r\n{{{"
            ),
        ]
    )
    bad = [
        word
        for word in (b"Traceback", b"uvicorn", b"starlette", b"site-packages", b"python")
        if word in found.lower()
    ]
    return not bad, "nothing"


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args()
    rows, held = [], True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        key, entry = make_key("attacker", scopes=("speak", "tokens"))
        less: dict[str, dict[str, Any]] = {
            "metrics": {"scopes": ("metrics",)},
            "small": {"scopes": ("speak", "tokens"), "sessions": 2, "chars_per_minute": 200},
            "few": {"requests_per_minute": 5},
        }
        others = {name: make_key(name, **options) for name, options in less.items()}
        write_keys(folder / "keys.json", KeyRing([entry, *(each for _, each in others.values())]))
        log = (folder / "log").open("wb")
        os.dup2(log.fileno(), 2)
        options = [
            "--keys-file",
            str(folder / "keys.json"),
            "--record-dir",
            str(folder / "recordings"),
        ]
        options += ["--log-level", "debug", "--capacity-share", "0"]
        options += ["--handshake-timeout-seconds", "3", "--body-timeout-seconds", "3"]
        environment = {"VOXGATE_TOKEN_SECRET": os.urandom(24).hex()}
        async with gateway(*options, environment=environment) as server:
            place = Place(server, key, folder, {name: made for name, (made, _) in others.items()})
            for area, what, function in TRIES:
                try:
                    good, said = await function(place)
                except Exception as failure:
                    good, said = False, f"{type(failure).__name__}: {failure}"
                held &= good
                rows.append(
                    f"| {area} | {what} | {said} | {'held' if good else '**did not hold**'} |"
                )
                print(rows[-1], flush=True)
            alive = await server.status("/health/ready") == 200
            print(f"after all of it the gateway {'speaks' if alive else 'does not speak'}")
            held &= alive
    if arguments.markdown:
        text = arguments.markdown.read_text() if arguments.markdown.exists() else ""
        head, mark, _ = text.partition("<!-- tried -->")
        table = "| | Tried | Happened | |\n| --- | --- | --- | --- |\n" + "\n".join(rows)
        arguments.markdown.write_text(f"{head}{mark}\n\n{table}\n")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
