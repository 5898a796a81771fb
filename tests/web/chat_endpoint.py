"""An OpenAI-compatible chat endpoint that streams a script, in a thread."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Endpoint:
    """What it answers, and what it was asked."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.answer: list[str] = ["Hello ", "there."]
        self.status = 200
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []


@contextmanager
def chat_endpoint() -> Iterator[Endpoint]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def _head(self, status: int, kind: str) -> None:
            self.send_response(status)
            self.send_header("Access-Control-Allow-Origin", "*")
            self.send_header("Access-Control-Allow-Headers", "authorization, content-type")
            self.send_header("Content-Type", kind)
            self.end_headers()

        def do_OPTIONS(self) -> None:
            self._head(204, "text/plain")

        def do_POST(self) -> None:
            endpoint.asked.append(
                json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                | {"path": self.path}
            )
            endpoint.keys.append(self.headers["Authorization"])
            if endpoint.status != 200:
                self._head(endpoint.status, "application/json")
                self.wfile.write(b'{"error": {"message": "no"}}')
                return
            self._head(200, "text/event-stream")
            try:
                for token in endpoint.answer:
                    event = {"choices": [{"delta": {"content": token}}]}
                    self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
                    self.wfile.flush()
                    time.sleep(0.02)
                self.wfile.write(b"data: [DONE]\n\n")
            except OSError:
                return  # The page went away, as it does on a barge-in.

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    endpoint = Endpoint(f"http://127.0.0.1:{server.server_port}/v1")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
