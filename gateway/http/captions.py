"""`GET /v1/sessions/{id}/captions.vtt`: what a session said, as WebVTT."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Literal, cast

from starlette.responses import Response, StreamingResponse

from gateway.http.health import json_response
from gateway.transcript import Transcript

_TEXTS = ("written", "spoken")
_HINTS = {
    "unknown_session": "Take the id of `session.started`, while the session lasts or soon after.",
    "bad_field": "Correct the field; captions can be asked for again.",
}


def captions_response(transcript: Transcript | None, query: Mapping[str, str]) -> Response:
    """`?turn=N` gives one turn on its own clock, `?text=spoken` what was said for the writing."""
    if transcript is None:
        return _refused(404, "unknown_session", "No session has this id, or it ended long ago.")
    turn = query.get("turn")
    if turn is not None and not (turn.isascii() and turn.isdigit()):
        return _refused(400, "bad_field", "`turn` is a whole number.")
    text = query.get("text", "written")
    if text not in _TEXTS:
        return _refused(400, "bad_field", "`text` is `written` or `spoken`.")
    parts = transcript.parts(
        int(turn) if turn is not None else None, cast(Literal["written", "spoken"], text)
    )
    return StreamingResponse(
        _in_turns(parts),
        media_type="text/vtt; charset=utf-8",
        headers={"Cache-Control": "no-store"},
    )


async def _in_turns(parts: Iterator[str]) -> AsyncIterator[str]:
    """Part by part, everybody else in between."""
    for part in parts:
        yield part
        await asyncio.sleep(0)


def _refused(status: int, code: str, message: str) -> Response:
    return json_response(status, {"code": code, "message": message, "hint": _HINTS[code]})
