"""A token in the first message, for browsers that can set no header and want none in the URL.

It is taken out before anything sees the message, so that no recording has it.
"""

from __future__ import annotations

from collections.abc import Callable

import orjson

_FIELD = "access_token"


class FirstMessage:
    """Filters what a client sends; `show` gets the token of a `session.start`."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show

    def __call__(self, raw: str | bytes) -> str | bytes:
        if isinstance(raw, bytes) or _FIELD not in raw:
            return raw
        try:
            values = orjson.loads(raw)
        except orjson.JSONDecodeError:
            return raw
        if not isinstance(values, dict):
            return raw
        token = values.pop(_FIELD, None)
        if token is None:
            return raw
        if isinstance(token, str) and values.get("type") == "session.start":
            self._show(token)
        return orjson.dumps(values).decode()
