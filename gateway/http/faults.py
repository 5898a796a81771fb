"""Refusals that no route makes, in the shape of the API whose path was asked for: there is no such
path, it does not take this method, or the server has a fault."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Match, Route

from gateway.errors import ERRORS
from gateway.http import native, openai
from gateway.http.elevenlabs import wishes as elevenlabs
from gateway.http.elevenlabs.catalogue import asks
from gateway.link import GatewayError

_ELEVENLABS = ("/v1/text-to-speech", "/v1/voices", "/v1/user", "/v1/single-use-token", "/v2/")
_NATIVE = ("/v1/sessions/", "/v1/tokens", "/v1/stream")
PAGES = "/{path:path}"
"""The route that takes whatever no other does."""


def refusal_of(connection: HTTPConnection, failure: GatewayError) -> Response:
    """A failure in the shape of the API that a request belongs to."""
    path = connection.url.path
    if path.startswith(_NATIVE):
        return native.error_reply(failure)
    if path.startswith(_ELEVENLABS) or (path.startswith("/v1/") and asks(connection)):
        return elevenlabs.error_reply(failure)
    if path.startswith("/v1/"):
        return openai.error_reply(failure)
    return native.error_reply(failure)


async def not_served(request: Request, refused: Exception) -> Response:
    """Answers 404 and 405. Which of them it is is found here: the route of the pages takes every
    path, so a wrong method looks like a page that is not there."""
    assert isinstance(refused, HTTPException)
    methods = _methods(request)
    if not methods:
        message = f"Unknown request URL: {request.method} {request.url.path}."
        return refusal_of(request, GatewayError("unknown_url", message))
    allow = ", ".join(sorted(methods))
    if request.method == "OPTIONS":
        return Response(status_code=204, headers={"allow": allow})
    message = f"{request.method} is not allowed on {request.url.path}; these are: {allow}."
    reply = refusal_of(request, GatewayError("method_not_allowed", message))
    reply.headers["allow"] = allow
    return reply


async def fault(request: Request, _: Exception) -> Response:
    """Answers 500; the server logs what happened."""
    return refusal_of(request, GatewayError("internal", ERRORS["internal"].meaning))


def _methods(request: Request) -> set[str]:
    """What the routes of a path take."""
    found: set[str] = set()
    for route in request.app.routes:
        if isinstance(route, Route) and route.path != PAGES:
            match, _ = route.matches(request.scope)
            if match is not Match.NONE:
                found |= route.methods or set()
    return found
