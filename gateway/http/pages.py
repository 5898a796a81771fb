"""The demo page: static files of the package `web`, under a strict content security policy."""

from __future__ import annotations

import mimetypes
from importlib import resources

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "media-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
_SUFFIXES = (".html", ".js", ".css", ".svg")


def load_pages() -> dict[str, tuple[bytes, str]]:
    """Every file of the page by URL path: content and media type."""
    pages = {}
    for entry in resources.files("web").iterdir():
        if entry.name.endswith(_SUFFIXES):
            media_type = mimetypes.guess_type(entry.name)[0] or "application/octet-stream"
            pages[f"/{entry.name}"] = (entry.read_bytes(), media_type)
    pages["/"] = pages["/index.html"]
    return pages


class Pages:
    """Serves the files from memory."""

    def __init__(self) -> None:
        self._pages = load_pages()

    async def serve(self, request: Request) -> Response:
        page = self._pages.get(request.url.path)
        if page is None:
            raise HTTPException(404)
        return Response(page[0], headers=_HEADERS, media_type=page[1])
