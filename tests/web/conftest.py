"""Pages in headless Chromium, before the real engine or a scripted one.

Playwright keeps an event loop running in this thread, so it is started once for this folder.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, Route, sync_playwright

sys.path.insert(0, str(Path(__file__).parent))

from browser import SCRIPTED, chromium, free_port, process, serving
from probes import PROBES

Open = Callable[..., Page]


@pytest.fixture(scope="package")
def driver() -> Iterator[Playwright]:
    with sync_playwright() as started:
        yield started


@pytest.fixture(scope="package")
def browser(driver: Playwright) -> Iterator[Browser]:
    with chromium(driver) as launched:
        yield launched


@pytest.fixture(scope="package")
def speaking() -> Iterator[str]:
    """The URL of a gateway with the embedded voice."""
    with serving() as url:
        yield url


@pytest.fixture(scope="package")
def scripted() -> Iterator[str]:
    """The URL of a gateway with the scripted engine; sessions wait three seconds to be resumed."""
    port = free_port()
    command = [*SCRIPTED, "--port", str(port), "--resume-seconds", "3"]
    with process(command, "Ctrl-C stops it"):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def keyed(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The URL of a scripted gateway that asks for a key, and a key."""
    file, port = tmp_path / "keys.json", free_port()
    add = [*SCRIPTED[:2], "keys", "add", "page", "--scope", "speak", "--file", str(file)]
    told = subprocess.run(add, capture_output=True, text=True, check=True).stdout
    key = re.search(r"vg_\S+", told)
    assert key is not None
    with process([*SCRIPTED, "--port", str(port), "--keys-file", str(file)], "Ctrl-C stops it"):
        yield f"http://127.0.0.1:{port}", key[0]


def _late(route: Route) -> None:
    """An answer that takes its time."""
    route.request.frame.page.wait_for_timeout(300)
    route.continue_()


@pytest.fixture
def page_at(browser: Browser) -> Iterator[Open]:
    """Opens the page and waits until it is connected; no script error and no breach of its policy
    may happen on it."""
    contexts: list[BrowserContext] = []
    problems: list[str] = []

    def open_page(
        url: str, *, script: str = "", slow: str = "", connected: bool = True, **options: object
    ) -> Page:
        context = browser.new_context(**{"locale": "en-US", **options})  # type: ignore[arg-type]
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.add_init_script(PROBES + script)
        if slow:
            page.route(slow, _late)
        page.goto(url)
        if connected:
            page.locator('#link[data-state="open"]').wait_for()
        return page

    yield open_page
    for context in contexts:
        for page in context.pages:
            problems += page.evaluate("() => probes.breaches")
        context.close()
    assert problems == []
