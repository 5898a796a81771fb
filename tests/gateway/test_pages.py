"""The page's files over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from gateway.http.pages import CONTENT_SECURITY_POLICY, Pages


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    app = Starlette(routes=[Route("/{path:path}", Pages().serve)])
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        yield client


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html"),
        ("/index.html", "text/html"),
        ("/style.css", "text/css"),
        ("/icon.svg", "image/svg+xml"),
        ("/app/main.js", "text/javascript"),
        ("/client/index.js", "text/javascript"),
        ("/client/index.d.ts", "text/plain"),
        ("/client/README.md", "text/markdown"),
    ],
)
async def test_files_are_served_under_the_policy(
    http: httpx.AsyncClient, path: str, kind: str
) -> None:
    answer = await http.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith(kind)
    assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert "unsafe" not in CONTENT_SECURITY_POLICY


async def test_what_has_not_changed_is_not_sent_again(http: httpx.AsyncClient) -> None:
    first = await http.get("/app/main.js")
    again = await http.get("/app/main.js", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    changed = await http.get("/app/main.js", headers={"if-none-match": '"another"'})
    assert changed.content == first.content


@pytest.mark.parametrize(
    "path", ["/__init__.py", "/client", "/app/../../gateway/app.py", "/nothing.js"]
)
async def test_nothing_else_is_served(http: httpx.AsyncClient, path: str) -> None:
    assert (await http.get(path)).status_code == 404


async def test_the_page_names_no_other_host(http: httpx.AsyncClient) -> None:
    page = (await http.get("/")).text
    assert "//" not in page.replace("http://localhost:11434/v1", "")
