"""The demo page and the browser client: static files of the package `web`, under a strict content
security policy."""

from __future__ import annotations

import hashlib
import mimetypes
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

# The page may ask a chat endpoint that the person before it names: anywhere, but not in the clear
# beyond this machine. Everything else comes from here.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; "
    "connect-src 'self' https: http://localhost:* http://127.0.0.1:*; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cross-origin-opener-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
_SUFFIXES = (".html", ".js", ".css", ".svg", ".ts", ".md")
# What a system's own list says of these differs from one to the next.
_TYPES = {".js": "text/javascript", ".ts": "text/plain", ".md": "text/markdown"}


@dataclass(frozen=True, slots=True)
class Page:
    """One file as it is served."""

    content: bytes
    media_type: str
    etag: str


def load_pages() -> dict[str, Page]:
    """Every file of the page by URL path."""
    pages = {path: _page(entry) for path, entry in _files(resources.files("web"), "/")}
    pages["/"] = pages["/index.html"]
    return pages


def _files(folder: Traversable, path: str) -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _files(entry, f"{path}{entry.name}/")
        elif entry.name.endswith(_SUFFIXES):
            yield path + entry.name, entry


def _page(entry: Traversable) -> Page:
    content = entry.read_bytes()
    suffix = entry.name[entry.name.rfind(".") :]
    guessed = _TYPES.get(suffix) or mimetypes.guess_type(entry.name)[0]
    etag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    return Page(content, guessed or "application/octet-stream", etag)


class Pages:
    """Serves the files from memory."""

    def __init__(self) -> None:
        self._pages = load_pages()
        self.paths = frozenset(self._pages)
        """What anybody may read."""

    async def serve(self, request: Request) -> Response:
        page = self._pages.get(request.url.path)
        if page is None:
            raise HTTPException(404)
        headers = {**_HEADERS, "etag": page.etag}
        if request.headers.get("if-none-match") == page.etag:
            return Response(status_code=304, headers=headers)
        return Response(page.content, headers=headers, media_type=page.media_type)
