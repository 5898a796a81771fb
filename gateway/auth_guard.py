"""The outermost layer of the application: who asks, how much a request may carry, what every answer
says to browsers.

Credentials are taken out of the request here, so that nothing behind it can log or record them.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Awaitable, Callable, Collection
from urllib.parse import parse_qsl, urlencode

import orjson
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.auth import Access, Denied, Principal
from gateway.errors import ERRORS
from gateway.protocol import PATH
from gateway.settings import Settings

STATE = "voxgate.auth"
"""Key in the ASGI scope: a `Principal`, or the `Denied` of a WebSocket that may still show a token
in its first message."""
SUBPROTOCOL = "voxgate.v1"
_SUBPROTOCOL_TOKEN = "voxgate.token."
_HEADERS = (b"xi-api-key", b"x-api-key")
_QUERY = ("token", "single_use_token", "authorization", "xi-api-key", "xi_api_key")
"""Where ElevenLabs' clients in browsers put theirs, besides our own."""
_FIRST_MESSAGE = re.compile(rf"{PATH}|/v1/text-to-speech/[^/]+/(multi-)?stream-input")
"""WebSockets whose first message may show a key."""
_THEIR_CODES = {"unauthorized": "invalid_api_key"}
_SAFE = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
_HSTS = (b"strict-transport-security", b"max-age=31536000")
_OPEN = ("/health", "/health/ready")


class Guard:
    """Wraps the application. `pages`: paths that anybody may read; `denied` gets the code of
    everything that is not let in."""

    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        settings: Settings,
        pages: Collection[str],
        denied: Callable[[str], None],
    ) -> None:
        self._app = app
        self._denied = denied
        self._access = access
        self._settings = settings
        self._open = {*pages, *_OPEN}
        if settings.open_metrics:
            self._open.add("/metrics")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, self._with_headers(scope, send))
        elif scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        credential = take_credential(scope)
        if self._access.enabled and scope["path"] not in self._open:
            found = self._identify(scope, credential)
            if isinstance(found, Denied):
                self._denied(found.code)
                await denial(found)(scope, receive, send)
                return
            scope[STATE] = found
        length = int(dict(scope["headers"]).get(b"content-length") or 0)
        if length > self._settings.max_body_bytes:
            await _too_large()(scope, receive, send)
            return
        body = _Body(scope, receive, send, self._settings)
        try:
            await self._app(scope, body.receive, body.send)
        except Exception:
            # The application was told that its peer is gone.
            if not body.refused:
                raise

    def _identify(self, scope: Scope, credential: str | None) -> Principal | Denied:
        path = scope["path"]
        needed = {"/metrics": "metrics", "/v1/tokens": "tokens"}.get(path, "speak")
        return self._access.enter(credential, needed)

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        credential = take_credential(scope)
        if self._access.enabled:
            found = self._identify(scope, credential)
            # A page cannot read why a handshake failed: it is told in answer to its first message.
            page = any(name == b"origin" for name, _ in scope["headers"])
            waits = _FIRST_MESSAGE.fullmatch(scope["path"])
            # Neither can ElevenLabs' library, which reads messages alone.
            reads = scope["path"] == PATH and not page
            if isinstance(found, Denied) and (not waits or (credential and reads)):
                self._denied(found.code)
                await refuse_websocket(found, scope, receive, send)
                return
            scope[STATE] = found
        if SUBPROTOCOL in scope["subprotocols"]:
            send = _accepting(send)
        await self._app(scope, receive, send)

    def _with_headers(self, scope: Scope, send: Send) -> Send:
        async def wrapped(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                there = {name.lower() for name, _ in headers}
                safe = (*_SAFE, _HSTS) if scope["scheme"] == "https" else _SAFE
                headers += [each for each in safe if each[0] not in there]
                message = {**message, "headers": headers}
            await send(message)

        return wrapped


def take_credential(scope: Scope) -> str | None:
    """The key or token of a request, taken out of it: header, subprotocol or query."""
    found: list[str] = []
    headers = []
    for name, value in scope["headers"]:
        if name == b"authorization":
            kind, _, rest = value.decode("latin-1").partition(" ")
            if kind.lower() == "bearer":
                found.append(rest.strip())
        elif name in _HEADERS:
            found.append(value.decode("latin-1").strip())
            # Its name tells whose client asks, where two APIs have the same path.
            headers.append((name, b""))
        elif name == b"sec-websocket-protocol":
            kept = []
            for part in value.decode("latin-1").split(","):
                if part.strip().startswith(_SUBPROTOCOL_TOKEN):
                    found.append(part.strip().removeprefix(_SUBPROTOCOL_TOKEN))
                else:
                    kept.append(part.strip())
            headers.append((name, ", ".join(kept).encode("latin-1")))
        else:
            headers.append((name, value))
    scope["headers"] = headers
    if "subprotocols" in scope:
        scope["subprotocols"] = [
            name for name in scope["subprotocols"] if not name.startswith(_SUBPROTOCOL_TOKEN)
        ]
    pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    kept_pairs = [(name, value) for name, value in pairs if name not in _QUERY]
    if len(kept_pairs) < len(pairs):
        found += [without_scheme(value) for name, value in pairs if name in _QUERY]
        scope["query_string"] = urlencode(kept_pairs).encode("latin-1")
    return next(filter(None, found), None)


def without_scheme(value: str) -> str:
    """A credential that may stand behind `Bearer`."""
    kind, _, rest = value.strip().partition(" ")
    return rest.strip() if kind.lower() == "bearer" else value.strip()


def who(connection: HTTPConnection) -> Principal | Denied | None:
    """Whose request it is; None where no keys are used."""
    state: Principal | Denied | None = connection.scope.get(STATE)
    return state


def denial(denied: Denied) -> Response:
    """An answer that clients of every protocol served here can read."""
    kind = ERRORS[denied.code]
    message = denied.message or kind.meaning
    theirs = _THEIR_CODES.get(denied.code, denied.code)
    type = "rate_limit_error" if kind.status == 429 else "invalid_request_error"
    body: dict[str, object] = {
        "code": denied.code,
        "message": message,
        "hint": kind.hint,
        # As OpenAI and ElevenLabs write it.
        "error": {"message": message, "type": type, "param": None, "code": theirs},
        "detail": {"type": type, "code": theirs, "status": theirs, "message": message},
    }
    headers = {"cache-control": "no-store"}
    if kind.status == 401:
        headers["www-authenticate"] = 'Bearer realm="voxgate"'
    if denied.retry_after_ms:
        body["retry_after_ms"] = denied.retry_after_ms
        headers["retry-after"] = str(math.ceil(denied.retry_after_ms / 1000))
    return Response(orjson.dumps(body), kind.status, headers, "application/json")


async def refuse_websocket(denied: Denied, scope: Scope, receive: Receive, send: Send) -> None:
    """Refuse a handshake by its status."""
    await receive()
    response = denial(denied)
    await send(
        {
            "type": "websocket.http.response.start",
            "status": response.status_code,
            "headers": response.raw_headers,
        }
    )
    await send({"type": "websocket.http.response.body", "body": response.body})


def _accepting(send: Send) -> Send:
    async def wrapped(message: Message) -> None:
        if message["type"] == "websocket.accept":
            message = {**message, "subprotocol": SUBPROTOCOL}
        await send(message)

    return wrapped


class _Body:
    """An end to what comes as a body and to the time it takes: then the answer goes out from here,
    and the application finds its peer gone."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, settings: Settings) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._most = settings.max_body_bytes
        self._deadline = asyncio.get_running_loop().time() + settings.body_timeout_seconds
        self._bytes = 0
        self._whole = False
        self._answering = False
        self.refused = False

    async def receive(self) -> Message:
        if self._whole or self._answering:
            # From here on the application waits for the peer to go away, which may take for ever.
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            late = _plain(408, "body_timeout", "The body did not come in time.", close=True)
            return await self._refuse(late)
        if message["type"] == "http.request":
            self._bytes += len(message.get("body", b""))
            self._whole = not message.get("more_body", False)
            if self._bytes > self._most:
                return await self._refuse(_too_large())
        return message

    async def send(self, message: Message) -> None:
        if not self.refused:
            self._answering = True
            await self._send(message)

    async def _refuse(self, response: Response) -> Message:
        self.refused = True
        await response(self._scope, self._receive, self._send)
        return {"type": "http.disconnect"}


def _too_large() -> Response:
    return _plain(413, "body_too_large", "The body is larger than this server takes.", close=True)


def _plain(status: int, code: str, message: str, *, close: bool = False) -> Response:
    body = {
        "code": code,
        "message": message,
        "error": {"message": message, "type": "invalid_request_error", "code": code},
        "detail": {"status": code, "message": message},
    }
    headers = {"cache-control": "no-store", **({"connection": "close"} if close else {})}
    return Response(orjson.dumps(body), status, headers, "application/json")


def give_token(access: Access) -> Callable[[Request], Awaitable[Response]]:
    """`POST /v1/tokens`: a short-lived token for a browser."""

    async def endpoint(request: Request) -> Response:
        principal = who(request)
        if not isinstance(principal, Principal):
            return denial(Denied("no_tokens"))
        seconds = request.query_params.get("seconds")
        if seconds is not None and not (seconds.isdecimal() and 0 < int(seconds) <= 10**9):
            return _plain(400, "bad_field", "`seconds` is a whole number above 0.")
        made = access.token(principal, int(seconds) if seconds else None)
        if isinstance(made, Denied):
            return denial(made)
        token, lifetime = made
        answer = {"token": token, "expires_in": lifetime}
        return Response(
            orjson.dumps(answer), 200, {"cache-control": "no-store"}, "application/json"
        )

    return endpoint
