"""What the HTTP routes of all APIs share: bodies in, and sound out until the client goes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import TypeVar

import orjson
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.http.speech import Part
from gateway.link import GatewayError

_log = logging.getLogger("voxgate.http")
_STALL_SECONDS = 60.0
"""A client that takes nothing for so long is given up; players of files pause longer than those of
streams."""
Model = TypeVar("Model", bound=BaseModel)
ErrorReply = Callable[[GatewayError], Response]
Wrap = Callable[[Part], bytes]


async def read_body(request: Request, model: type[Model], limit: int) -> Model:
    """The JSON body. Raises `GatewayError`: `bad_json`, `text_too_long`, `unknown_parameter` or
    `bad_field`, with the field that is wrong."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > limit:
            raise GatewayError("text_too_long", f"A request has at most {limit} bytes.")
    try:
        return model.model_validate_json(bytes(body))
    except ValidationError as invalid:
        first = invalid.errors(include_url=False, include_input=False)[0]
        if first["type"] == "json_invalid":
            message = f"The body is not JSON: {first['ctx']['error']}."
            raise GatewayError("bad_json", message) from None
        field = ".".join(str(part) for part in first["loc"]) or None
        if first["type"] == "extra_forbidden":
            message = f"There is no field `{field}` here."
            raise GatewayError("unknown_parameter", message, field=field) from None
        message = f"`{field}`: {first['msg']}." if field else f"{first['msg']}."
        raise GatewayError("bad_field", message, field=field) from None


def retry_headers(failure: GatewayError) -> dict[str, str]:
    """When to come back, in whole seconds as HTTP has it."""
    if failure.retry_after_ms is None:
        return {}
    return {"retry-after": str(max(1, -(-failure.retry_after_ms // 1000)))}


class SpeechResponse(Response):
    """Sends the parts of `speech` as they are made; its status waits for the first of them.

    `wrap` makes the bytes of a part; empty ones are not sent. `broken` makes the last words of a
    stream that fails after it began, where the format has any; else the transfer is broken off,
    which is the only way left to say so. A client that goes away closes `speech` at once.
    """

    def __init__(
        self,
        speech: AsyncGenerator[Part, None],
        media_type: str,
        error: ErrorReply,
        *,
        wrap: Wrap | None = None,
        broken: Callable[[GatewayError], bytes] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._speech = speech
        self._error = error
        self._wrap = wrap or _only_bytes
        self._broken = broken
        self.background = None
        self.status_code = 200
        self.body = b""
        self.media_type = media_type
        self.init_headers(
            {"cache-control": "no-store", "x-accel-buffering": "no", **(headers or {})}
        )
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self._send(scope, receive, send))
        gone = asyncio.create_task(_gone(receive))
        try:
            await asyncio.wait((sending, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            if not sending.done():
                sending.cancel()
            await asyncio.gather(gone, return_exceptions=True)
            with contextlib.suppress(asyncio.CancelledError):
                await sending

    async def _send(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False
        async with contextlib.aclosing(self._speech) as speech:
            try:
                async for part in speech:
                    data = self._wrap(part)
                    if not data:
                        continue
                    if not begun:
                        begun = True
                        await send(
                            {
                                "type": "http.response.start",
                                "status": self.status_code,
                                "headers": self.raw_headers,
                            }
                        )
                    await _send_in_time(send, data)
            except GatewayError as failure:
                if not begun:
                    await self._error(failure)(scope, receive, send)
                    return
                _log.warning("a response breaks off: %s", failure)
                if self._broken is None:
                    # The server closes the connection of a response that is not completed.
                    return
                await _send_in_time(send, self._broken(failure))
            except TimeoutError:
                _log.warning("a client took nothing for %g s", _STALL_SECONDS)
                return
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _only_bytes(part: Part) -> bytes:
    return part if isinstance(part, bytes) else b""


async def _send_in_time(send: Send, data: bytes) -> None:
    async with asyncio.timeout(_STALL_SECONDS):
        await send({"type": "http.response.body", "body": data, "more_body": True})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def server_sent(values: object, event: str | None = None) -> bytes:
    """One server-sent event."""
    name = f"event: {event}\n".encode() if event else b""
    return name + b"data: " + orjson.dumps(values) + b"\n\n"
