"""`examples/page.html` in a browser, served from an origin of its own."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from browser import installed_chromium
from fake_engine import FakeSynthesizer, Script
from gateway_conftest import Run
from playwright.async_api import Page, async_playwright

ROOT = Path(__file__).parents[2]


@contextlib.asynccontextmanager
async def web_server(folder: Path, port: int) -> AsyncIterator[str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-u", "-m", "http.server", str(port), "-d", str(folder), "-b", "127.0.0.1",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdout is not None
    await process.stdout.readline()
    yield f"http://127.0.0.1:{port}"
    process.terminate()
    await process.wait()


async def until(page: Page, expression: str) -> None:
    async with asyncio.timeout(30):
        while not await page.evaluate(expression):
            await asyncio.sleep(0.05)


@pytest.mark.browser
async def test_the_page_speaks_shows_and_stops(
    run: Run, tmp_path: Path, unused_tcp_port: int
) -> None:
    shutil.copy(ROOT / "examples" / "page.html", tmp_path)
    shutil.copytree(ROOT / "web" / "client", tmp_path / "client")
    engine = FakeSynthesizer(lambda *_: Script(samples=24_000, delay=0.005))
    origin = f"http://127.0.0.1:{unused_tcp_port}"
    async with (
        run(engine, allowed_origins=origin) as running,
        web_server(tmp_path, unused_tcp_port),
        async_playwright() as driver,
    ):
        browser = await driver.chromium.launch(
            executable_path=installed_chromium(),
            args=["--no-sandbox", "--autoplay-policy=no-user-gesture-required"],
        )
        page = await browser.new_page()
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        await page.goto(f"{origin}/page.html?gateway={running.url}")
        await page.fill("#text", "Hello you. How are you?")
        await page.click("#speak")
        await until(page, "document.getElementById('said').textContent.startsWith('Hello')")
        await until(page, "document.getElementById('state').value === 'heard'")
        said = await page.text_content("#said")
        assert said == "Hello you. How are you?"
        await page.click("#speak")
        await until(page, "document.getElementById('state').value === 'speaking'")
        await page.click("#stop")
        await until(page, "document.getElementById('state').value === 'cancelled'")
        await browser.close()
    assert not problems
