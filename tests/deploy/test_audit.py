"""The audit of dependencies, by a database that knows something, nothing, or does not answer."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.deploy


class Database(http.server.BaseHTTPRequestHandler):
    """OSV's query. It knows one fault, of `faulty`."""

    faulty = ""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        name = asked["package"]["name"]
        vulnerabilities = []
        if name == self.faulty:
            ranges = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}]}]
            affected = [{"package": {"name": name, "ecosystem": "PyPI"}, "ranges": ranges}]
            vulnerabilities = [
                {"id": "VOX-1", "summary": "a fault", "affected": affected, "aliases": []}
            ]
        body = json.dumps({"vulns": vulnerabilities}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Not into the test's output."""


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Database)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1/query"
    server.shutdown()


def audit(*options: str) -> tuple[int, str]:
    done = subprocess.run(
        ["scripts/audit.sh", *options],
        cwd=ROOT,
        env={**os.environ, "LOCKS": "dev"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_what_is_known_fails_and_what_could_not_be_asked_is_said(
    database: str, unused_tcp_port: int
) -> None:
    asked = ("-s", "osv", "--osv-url", database)
    code, said = audit("--must", *asked)
    assert (code, "NOT AUDITED" in said) == (0, False), said
    Database.faulty = "ruff"
    code, said = audit(*asked)
    assert (code, "VOX-1" in said) == (1, True), said
    nobody = ("-s", "osv", "--osv-url", f"http://127.0.0.1:{unused_tcp_port}/")
    code, said = audit(*nobody)
    assert (code, "NOT AUDITED: dev" in said) == (0, True), said
    assert audit("--must", *nobody)[0] == 3
