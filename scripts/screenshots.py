"""Takes the pictures of the page in docs/screenshots: the real page, gateway, engine and browser.

    .venv/bin/python scripts/screenshots.py [--url http://127.0.0.1:8080]

Without `--url` a gateway of its own is started.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "web"))

from browser import chromium, serving, until  # noqa: E402

OUT = ROOT / "docs" / "screenshots"
STORY = (
    "A lighthouse keeper wrote down every ship that passed. He knew them by their lights, and "
    "they knew him by his. One night a ship went by that he had never seen."
)
MIXED = (
    "In Chinese one says 你好，世界, and in English: hello, world. 今天天气很好，我们去公园散步吧。"
)
CHINESE = "守塔人把每一艘经过的船都记下来。他认得它们的灯，它们也认得他的。"


@contextmanager
def opened(
    browser: Browser, url: str, *, size: tuple[int, int], dark: bool = False, locale: str = "en-US"
) -> Iterator[Page]:
    phone = size[0] < 500
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        device_scale_factor=2 if phone else 1,
        color_scheme="dark" if dark else "light",
        locale=locale,
        has_touch=phone,
        is_mobile=phone,
    )
    page = context.new_page()
    page.goto(url)
    page.locator('#link[data-state="open"]').wait_for()
    try:
        yield page
    finally:
        context.close()


def say(page: Page, text: str) -> None:
    page.fill("#text", text)
    page.press("#text", "Enter")


def hear_out(page: Page) -> None:
    until(page, "() => !voxgate.talk.speaking")


def until_word(page: Page, index: int) -> None:
    """Until so many words of the turn were heard."""
    reached = """(n) => {
      const place = voxgate.talk.position();
      return place && place.turn.words.at(place.sample) >= n;
    }"""
    until(page, reached, index)


def take(page: Page, name: str) -> None:
    page.wait_for_timeout(300)
    page.screenshot(path=OUT / f"{name}.png")
    print(OUT / f"{name}.png")


def desktop(browser: Browser, url: str) -> None:
    with opened(browser, url, size=(1440, 900)) as page:
        take(page, "desktop-start")
        say(page, MIXED)
        hear_out(page)
        say(page, STORY)
        until_word(page, 16)
        take(page, "desktop")
        page.click("#open-wire")
        take(page, "desktop-wire")


def dark(browser: Browser, url: str) -> None:
    with opened(browser, url, size=(1440, 900), dark=True) as page:
        page.click("#mode-chat")
        say(page, "What do you know about satellites?")
        until_word(page, 14)
        page.keyboard.press("Escape")
        page.locator(".unsaid").wait_for()
        say(page, "And what do you need?")
        until_word(page, 6)
        take(page, "desktop-dark")


def phone(browser: Browser, url: str) -> None:
    with opened(browser, url, size=(390, 844)) as page:
        say(page, STORY)
        until_word(page, 12)
        take(page, "phone")
    with opened(browser, url, size=(390, 844), dark=True, locale="zh-CN") as page:
        say(page, CHINESE)
        until_word(page, 8)
        take(page, "phone-dark")
        page.click("#open-meters")
        take(page, "phone-meters")


def main() -> None:
    parser = argparse.ArgumentParser(description="Take the pictures of the page.")
    parser.add_argument("--url", help="of a gateway that runs already")
    arguments = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    with serving(arguments.url) as url, sync_playwright() as driver, chromium(driver) as browser:
        desktop(browser, url)
        dark(browser, url)
        phone(browser, url)


if __name__ == "__main__":
    main()
