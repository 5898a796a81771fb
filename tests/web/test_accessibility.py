"""axe-core finds nothing to object to, in any of the page's faces; and the keyboard reaches all."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from browser import until
from conftest import Open
from playwright.sync_api import Page

pytestmark = pytest.mark.browser

DESKTOP = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
SHORT = "Two short. One short."


AXE = Axe().axe_script


def objections(page: Page) -> list[str]:
    """Of axe-core, in both languages of the interface."""
    if not page.evaluate("() => 'axe' in globalThis"):
        page.evaluate(AXE)
    found = []
    for _ in range(2):
        result = page.evaluate("(options) => axe.run(options)", RULES)
        found += [
            f"{each['id']}: {node['html'][:160]} {node['failureSummary']}"
            for each in result["violations"]
            for node in each["nodes"]
        ]
        page.evaluate("() => document.getElementById('language').click()")
    return found


def say(page: Page, text: str) -> None:
    page.fill("#text", text)
    page.press("#text", "Enter")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_axe_has_no_objection(
    page_at: Open, scripted: str, scheme: str, size: dict[str, int]
) -> None:
    page = page_at(scripted, viewport=size, color_scheme=scheme, reduced_motion="reduce")
    assert objections(page) == []
    say(page, SHORT)
    say(page, "A long tone.")
    until(page, "() => document.querySelector('.now')?.textContent")
    assert objections(page) == []
    page.keyboard.press("Escape")
    page.locator(".unsaid").wait_for()
    page.click("#mode-chat")
    page.click("#endpoint summary")
    page.click("#open-wire")
    assert objections(page) == []
    page.click("#wire-close")
    page.click("#mode-captions")
    if size is PHONE:
        page.click("#open-setup")
        assert objections(page) == []
        page.click("#open-meters")
    assert objections(page) == []


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_it_is_one_screen_and_nothing_jumps(
    page_at: Open, scripted: str, size: dict[str, int]
) -> None:
    shifts = """
    globalThis.shifted = 0;
    new PerformanceObserver((list) => list.getEntries().forEach((entry) => {
      if (!entry.hadRecentInput) shifted += entry.value;
    })).observe({ type: "layout-shift", buffered: true });
    """
    page = page_at(scripted, viewport=size, script=shifts, slow="**/{metrics,v1/voices}")
    until(page, "() => document.querySelector('.voice:nth-child(2) small').textContent")
    until(page, "() => document.getElementById('sessions').textContent !== '–'")
    page.wait_for_timeout(100)
    fits = """() => [document.documentElement.scrollHeight <= innerHeight,
                     document.documentElement.scrollWidth <= innerWidth]"""
    assert page.evaluate(fits) == [True, True]
    assert page.evaluate("() => shifted") == 0
    # Nor the second time, when more of it is known from the start.
    page.reload()
    page.locator('#link[data-state="open"]').wait_for()
    page.wait_for_timeout(500)
    assert page.evaluate("() => shifted") == 0
    for name in ("#text", "#speak", "#stop"):
        box = page.locator(name).bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= size["height"]


def test_everything_is_reached_by_keyboard(page_at: Open, scripted: str) -> None:
    page = page_at(scripted, viewport=DESKTOP)
    reached = set()
    focused = "() => document.activeElement.id || document.activeElement.className"
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate(focused))
    assert {"text", "speak", "speed", "spoken", "format", "bitrate", "language", "theme"} <= reached
    assert {"open-wire", "mode-type", "scroll", "quiet icon preview", "chip"} <= reached
    page.focus("#mode-type")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("() => document.activeElement.id") == "mode-live"
    assert page.get_attribute("#mode-live", "aria-selected") == "true"


def test_sheets_of_a_phone_open_and_close_by_keyboard(page_at: Open, scripted: str) -> None:
    page = page_at(scripted, viewport=PHONE)
    for name, inside in (("setup", "voice"), ("meters", None)):
        page.focus(f"#open-{name}")
        page.keyboard.press("Enter")
        page.locator(f"#{name}").wait_for()
        if inside is not None:
            names = set()
            for _ in range(12):
                page.keyboard.press("Tab")
                names.add(page.evaluate("() => document.activeElement.name"))
            assert inside in names
        page.keyboard.press("Escape")
        page.locator(f"#{name}").wait_for(state="hidden")
        assert page.get_attribute(f"#open-{name}", "aria-expanded") == "false"


def test_screen_readers_are_told_after_the_speech(page_at: Open, scripted: str) -> None:
    page = page_at(scripted)
    page.evaluate(
        """() => {
          globalThis.told = [];
          new MutationObserver(() => told.push([
            document.getElementById("status").textContent, voxgate.talk.speaking,
          ])).observe(document.getElementById("status"), { childList: true });
        }"""
    )
    say(page, SHORT)
    until(page, "() => told.length")
    assert page.evaluate("() => told") == [["Said.", False]]
