"""A real browser and a real gateway."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, Playwright

_GATEWAY = [sys.executable, "-m", "gateway.cli", "serve", "--eager"]
SCRIPTED = [sys.executable, str(Path(__file__).with_name("serve_scripted.py")), "serve"]
_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-features=OptimizationHints",
    "--autoplay-policy=no-user-gesture-required",
)


def installed_chromium() -> str | None:
    """Where the system's Chromium is; `VOXGATE_CHROMIUM` names another one."""
    named = os.environ.get("VOXGATE_CHROMIUM")
    return named or next((path for name in _NAMES if (path := shutil.which(name))), None)


@contextmanager
def chromium(driver: Playwright, *flags: str) -> Iterator[Browser]:
    """Headless Chromium: the system's, or else the one `playwright install chromium` brings."""
    browser = driver.chromium.launch(
        executable_path=installed_chromium(), args=[*_FLAGS, *flags], handle_sigint=False
    )
    try:
        yield browser
    finally:
        browser.close()


def until(page: Page, expression: str, argument: Any = None, seconds: float = 40) -> Any:
    """Until the expression is true; the page's policy forbids what Playwright has for this."""
    ends = time.monotonic() + seconds
    while not (found := page.evaluate(expression, argument)):
        if time.monotonic() > ends:
            raise TimeoutError(expression)
        page.wait_for_timeout(20)
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        return int(reserved.getsockname()[1])


@contextmanager
def process(command: list[str], ready: str) -> Iterator[subprocess.Popen[str]]:
    """Run until the end of the block; starts once it has said `ready` on standard error."""
    running = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert running.stderr is not None
    lines = []
    for line in running.stderr:
        lines.append(line)
        if ready in line:
            break
    else:
        raise RuntimeError("".join(lines))
    try:
        yield running
    finally:
        running.terminate()
        running.wait()


@contextmanager
def serving(url: str | None = None) -> Iterator[str]:
    """`voxgate serve` with the embedded voice, unless one runs at `url` already."""
    if url is not None:
        yield url
        return
    port = free_port()
    with process([*_GATEWAY, "--port", str(port)], "Ctrl-C stops it"):
        yield f"http://127.0.0.1:{port}"
