"""The page with the embedded voice: what comes out of it is speech, and the page keeps step."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jiwer
import numpy as np
import pytest
import soundfile
import webvtt
from browser import until
from conftest import Open
from playwright.sync_api import Page

from training.judges import EnglishListener
from training.scoring import plain_words

pytestmark = [pytest.mark.browser, pytest.mark.engine]

ENGLISH = "Please send the report to the office before noon."
BOTH = (
    "We walked along the river. 今天天气很好，我们去公园散步吧。 The quick brown fox jumps high. "
    "Good night."
)
LONG = " ".join(["We walked along the river and talked about the weather."] * 4)


def say(page: Page, text: str) -> None:
    page.fill("#text", text)
    page.click("#speak")


def hear_out(page: Page) -> None:
    until(page, "() => voxgate.talk.session.turns.length === 0", seconds=90)


def save(page: Page, kind: str, folder: Path) -> Path:
    with page.expect_download() as started:
        page.click(f"#save-{kind}")
    path = folder / f"turn.{kind}"
    started.value.save_as(path)
    return path


def test_speech_is_heard_and_its_files_are_understood(
    page_at: Open, speaking: str, tmp_path: Path
) -> None:
    page = page_at(speaking)
    say(page, ENGLISH)
    shares: list[float] = []
    while page.evaluate("() => voxgate.talk.speaking"):
        share = page.evaluate("() => voxgate.player.analyser && probes.band(80, 4000)")
        if share is not None:
            shares.append(share)
        page.wait_for_timeout(20)
    # Speech: most of its energy lies in its band, and it comes and goes.
    assert len(shares) > 20
    assert np.median(shares) > 0.8

    audio = {kind: soundfile.read(save(page, kind, tmp_path)) for kind in ("wav", "ogg")}
    heard = EnglishListener().heard(audio["wav"][0].astype(np.float32))
    assert jiwer.wer(" ".join(plain_words(ENGLISH)), " ".join(plain_words(heard))) <= 0.25
    seconds = {kind: samples.size / rate for kind, (samples, rate) in audio.items()}
    assert seconds["ogg"] == pytest.approx(seconds["wav"], abs=0.03)
    # The same sound through this machine's own Opus decoder.
    ours, theirs = audio["wav"][0], audio["ogg"][0]
    theirs = theirs[:: audio["ogg"][1] // 24_000][: ours.size]
    assert np.corrcoef(ours[: theirs.size], theirs)[0, 1] > 0.98

    captions = webvtt.read(str(save(page, "vtt", tmp_path)))
    assert " ".join(caption.text for caption in captions) == ENGLISH
    assert captions[-1].end_in_seconds <= seconds["wav"] + 0.1
    assert re.fullmatch(r"\d+ ms", page.text_content("#first-sound") or "")
    until(page, "() => document.getElementById('cache').textContent.endsWith('%')")


MEASURE = """async (text) => {
  const { talk, player } = voxgate;
  const samples = probes.samples();
  const shown = probes.highlights();
  const tap = probes.listen();
  const underruns = () => Number(document.getElementById("underruns").textContent);
  const before = underruns();
  const turn = talk.speak(text);
  while (!turn.over) await new Promise((done) => setTimeout(done, 50));
  tap.stop();
  const first = samples.findIndex((sample) => Math.abs(sample) > 0.00316);
  const sound = tap.heard.find(({ peak }) => peak > 0.00316).at + 1000 * player.latency;
  return {
    gaps: underruns() - before,
    words: turn.words.words,
    shown: shown.map(({ at, start, text }) => ({ start, text, late: at - sound })),
    first,
  };
}"""


def lateness(measured: dict[str, Any]) -> list[float]:
    """Of each word, in ms: how long after it was heard it was highlighted."""
    due = {
        word["start"]: max(0.0, (word["startSample"] - measured["first"]) / 24)
        for word in measured["words"]
    }
    return [
        shown["late"] - due[shown["start"]] for shown in measured["shown"] if shown["start"] in due
    ]


def test_words_light_up_as_they_are_heard(page_at: Open, speaking: str) -> None:
    page = page_at(speaking)
    page.click("#speed")  # a gesture, and the audio is there before the first turn
    page.evaluate("() => voxgate.player.unlock()")
    # A machine that stands still for a moment says nothing about highlights.
    for _ in range(3):
        measured = page.evaluate(MEASURE, BOTH)
        late = lateness(measured)
        if not measured["gaps"] and max(map(abs, late)) <= 80:
            break
    assert len(late) == len(measured["words"])
    assert max(map(abs, late)) <= 80, late
    assert {"river", "天", "园", "fox"} <= {shown["text"] for shown in measured["shown"]}


def test_escape_silences_and_shows_what_was_not_said(page_at: Open, speaking: str) -> None:
    page = page_at(speaking)
    say(page, LONG)
    until(page, "() => document.querySelector('.heard')?.textContent.length > 30")
    page.evaluate(
        """() => {
          addEventListener("keydown", () => (probes.pressed = performance.now()), true);
          probes.tap = probes.listen();
        }"""
    )
    page.wait_for_timeout(200)
    page.keyboard.press("Escape")
    page.locator(".unsaid").wait_for()
    page.wait_for_timeout(200)
    loud_after = page.evaluate(
        """() => {
          const { heard } = probes.tap;
          const loud = heard.filter(({ at, peak }) => at > probes.pressed && peak > 0.001);
          const before = heard.filter(({ at, peak }) => at < probes.pressed && peak > 0.001);
          return [before.length, loud.length ? loud.at(-1).at - probes.pressed : 0];
        }"""
    )
    assert loud_after[0] > 0
    assert loud_after[1] <= 100
    said, unsaid = page.text_content(".heard") or "", page.text_content(".unsaid") or ""
    assert said + unsaid == LONG
    # A whole word, or a sentence and the space after it.
    assert re.search(r"(\w|\. )$", said)
    assert page.locator("#stop").is_disabled()
    # And on.
    say(page, ENGLISH)
    hear_out(page)
    assert page.locator(".turn").last.get_attribute("data-state") == "heard"
