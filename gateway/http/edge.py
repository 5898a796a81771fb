"""What comes before everything else: how paths are written, and pages of other origins.

A base URL that ends in a slash makes clients ask for `//v1/...`, and some end paths in one.
Browsers let a page read an answer only if the server names the page's origin, and ask before they
send keys or JSON.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.errors import ERRORS
from gateway.http.faults import refusal_of
from gateway.link import GatewayError

_METHODS = "GET, POST, DELETE"
_EXPOSED = "location, request-id, retry-after, x-voxgate-ignored"
_MAX_AGE_SECONDS = "600"
_SLASHES = re.compile("/{2,}")


class Edge:
    """Wraps the application. `allowed`: whether the page a request comes from may ask."""

    def __init__(self, app: ASGIApp, allowed: Callable[[HTTPConnection], bool]) -> None:
        self._app = app
        self._allowed = allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            path = _SLASHES.sub("/", scope["path"])
            scope["path"] = path.rstrip("/") or "/"
        connection = HTTPConnection(scope) if scope["type"] == "http" else None
        if connection is None or "origin" not in connection.headers:
            await self._app(scope, receive, send)
            return
        allowed = self._allowed(connection)
        asks = connection.headers.get("access-control-request-method")
        if scope["method"] == "OPTIONS" and asks is not None:
            await self._preflight(connection, allowed)(scope, receive, send)
        else:
            send = _naming(connection.headers["origin"], send) if allowed else send
            await self._app(scope, receive, send)

    def _preflight(self, connection: HTTPConnection, allowed: bool) -> Response:
        if not allowed:
            failure = GatewayError("origin_not_allowed", ERRORS["origin_not_allowed"].meaning)
            return refusal_of(connection, failure)
        headers = {
            "access-control-allow-origin": connection.headers["origin"],
            "access-control-allow-methods": _METHODS,
            "access-control-max-age": _MAX_AGE_SECONDS,
            "vary": "origin, access-control-request-headers",
        }
        wanted = connection.headers.get("access-control-request-headers")
        if wanted:
            headers["access-control-allow-headers"] = wanted
        return Response(status_code=204, headers=headers)


def _naming(origin: str, send: Send) -> Send:
    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=list(message.get("headers", ())))
            headers["access-control-allow-origin"] = origin
            headers["access-control-expose-headers"] = _EXPOSED
            headers.add_vary_header("origin")
            message = {**message, "headers": headers.raw}
        await send(message)

    return wrapped
