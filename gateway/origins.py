"""Which web pages may open a WebSocket: browsers let any page try, with its user's network.

The same-origin policy does not hold for WebSockets; checking `Origin` is the server's part.
"""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlsplit

_DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


def may_connect(origin: str | None, host: str | None, allowed: Collection[str]) -> bool:
    """Whether a page of `origin` may connect to the server that was asked for as `host`.

    Clients that are no browsers send no `Origin`. A page of this server itself always may, others
    if they are in `allowed` (`https://example.org`, or `*` for all).
    """
    if origin is None or "*" in allowed:
        return True
    if origin.lower() in {known.lower().rstrip("/") for known in allowed}:
        return True
    try:
        page = urlsplit(origin)
        server = urlsplit(f"{page.scheme}://{host}")
        default = _DEFAULT_PORTS.get(page.scheme)
        same = (page.port or default) == (server.port or default)
    except ValueError:
        return False
    return page.hostname is not None and page.hostname == server.hostname and same
