"""The modules of the browser client that need no sound, as a browser runs them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import Open
from playwright.sync_api import Page

from gateway.g711 import a_law, mu_law

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def module_page(browser: Any, scripted: str) -> Any:
    page = browser.new_page()
    page.goto(scripted)
    yield page
    page.close()


RING = """async (steps) => {
  const { JitterRing } = await import("/client/ring.js");
  const ring = new JitterRing(24000);
  const out = [];
  const trace = [];
  const block = new Float32Array(128);
  const written = {};
  for (const [what, ...rest] of steps) {
    if (what === "push") {
      const [turn, count] = rest;
      const start = written[turn] ?? 0;
      written[turn] = start + count;
      const hertz = 200 + 100 * turn;
      ring.push(turn, start, Float32Array.from({ length: count },
        (_, i) => 0.5 * Math.sin((2 * Math.PI * hertz * (start + i)) / 24000)));
    } else if (what === "complete") ring.complete(...rest);
    else if (what === "clear") ring.clear();
    else for (let i = 0; i < rest[0]; i += 1) {
      ring.read(block);
      out.push(...block);
      trace.push({ lead: ring.lead, playing: ring.playing, position: ring.position,
        passed: ring.passed.splice(0), onset: ring.onset, target: ring.target,
        underruns: ring.underruns });
    }
  }
  return { out, trace };
}"""


def ring(page: Page, *steps: tuple[object, ...]) -> tuple[np.ndarray, list[dict[str, Any]]]:
    result = page.evaluate(RING, [list(step) for step in steps])
    return np.array(result["out"]), result["trace"]


def steepest(samples: np.ndarray) -> float:
    return float(np.abs(np.diff(samples)).max())


# A 300 Hz sine of 0.5 changes by at most 0.039 from one sample to the next.
SMOOTH = 0.045


def test_playing_starts_with_50_ms_in_hand(module_page: Page) -> None:
    out, trace = ring(module_page, ("push", 1, 1199), ("read", 4), ("push", 1, 200), ("read", 4))
    assert not out[: 4 * 128].any()
    assert [point["playing"] for point in trace] == [False] * 4 + [True] * 4
    assert out[4 * 128 + 5] == pytest.approx(0.5 * np.sin(2 * np.pi * 300 * 5 / 24000), abs=1e-6)


def test_a_short_turn_does_not_wait(module_page: Page) -> None:
    out, trace = ring(module_page, ("push", 1, 300), ("complete", 1, 260), ("read", 3))
    expected = 0.5 * np.sin(2 * np.pi * 300 * np.arange(260) / 24000)
    assert out[:260] == pytest.approx(expected, abs=1e-6)
    assert not out[260:].any()
    assert trace[-1]["passed"] == [1]
    assert trace[-1]["underruns"] == 0


def test_running_dry_ramps_and_more_is_kept_in_hand_after_it(module_page: Page) -> None:
    out, trace = ring(
        module_page,
        ("push", 1, 2400),
        ("read", 40),
        ("push", 1, 9600),
        ("read", 60),
    )
    assert trace[39]["underruns"] == 1
    assert trace[39]["target"] > 0.1
    assert not out[2600 : 40 * 128].any()
    assert steepest(out) < SMOOTH
    # Nothing is lost: it goes on where it stopped, slowed by half a percent at most.
    assert trace[-1]["position"]["sample"] == pytest.approx(2400 + 60 * 128, abs=130)


def test_silence_after_a_clear_and_the_next_turn_at_once(module_page: Page) -> None:
    out, trace = ring(
        module_page, ("push", 1, 9600), ("read", 20), ("clear",), ("read", 2), ("read", 4),
        ("push", 2, 4800), ("read", 10),
    )  # fmt: skip
    assert steepest(out[: 26 * 128]) < SMOOTH
    assert not out[20 * 128 + 121 : 26 * 128].any()
    assert trace[21]["position"] is None
    assert trace[-1]["position"] == {"turn": 2, "sample": 10 * 128}


def test_turns_follow_each_other_to_the_sample(module_page: Page) -> None:
    out, trace = ring(
        module_page,
        ("push", 1, 3000), ("complete", 1, 2900), ("push", 2, 3000), ("complete", 2),
        ("read", 50),
    )  # fmt: skip
    sine = lambda hertz, n: 0.5 * np.sin(2 * np.pi * hertz * np.arange(n) / 24000)  # noqa: E731
    assert out[:2900] == pytest.approx(sine(300, 2900), abs=1e-6)
    assert out[2900:5900] == pytest.approx(sine(400, 3000), abs=1e-6)
    assert [turn for point in trace for turn in point["passed"]] == [1, 2]
    assert [point["onset"]["turn"] for point in trace if point["onset"]] == [1, 2]


def test_low_water_is_stretched(module_page: Page) -> None:
    """What comes in real time, with little in hand, is played a little slower."""
    steps: list[tuple[object, ...]] = [("push", 1, 1210)]
    for _ in range(200):
        steps += [("read", 1), ("push", 1, 127)]
    out, trace = ring(module_page, *steps)
    assert trace[-1]["underruns"] == 0
    assert trace[-1]["lead"] > 0.03
    assert steepest(out) < SMOOTH


def test_code_points(module_page: Page) -> None:
    text = "a😀b你𠮷!"
    units = module_page.evaluate(
        """async (text) => {
          const { CodePointText } = await import("/client/index.js");
          const written = new CodePointText();
          for (const part of [text.slice(0, 3), text.slice(3)]) written.append(part);
          return [...Array(written.points + 1).keys()].map((point) => written.unit(point));
        }""",
        text,
    )
    assert units == [len(text[:end].encode("utf-16-le")) // 2 for end in range(len(text) + 1)]


WORDS = """async (captions) => {
  const { WordTrack } = await import("/client/index.js");
  const track = new WordTrack();
  return captions.map((caption) => {
    track.take(caption);
    return track.words.map((word) => [word.start, word.end, word.startSample, word.exact]);
  });
}"""


def test_words_told_early_are_exact_and_the_others_follow_them(module_page: Page) -> None:
    caption = {"piece": 0, "text": "We 𠮷 walked on.", "start": 10, "start_sample": 1000}
    first = {"text": "We", "start": 10, "end": 12, "start_sample": 1500, "end_sample": 5000}
    second = {"text": "𠮷", "start": 13, "end": 14, "start_sample": 5200, "end_sample": 9000}
    begun, early, more = module_page.evaluate(
        WORDS,
        [
            {**caption, "final": False},
            {**caption, "final": False, "words": [first]},
            {**caption, "final": False, "words": [first, second]},
        ],
    )
    assert [word[:2] for word in begun] == [[10, 12], [13, 14], [15, 21], [22, 24]]
    assert begun[0][2] == pytest.approx(1000, abs=1000)
    assert [word[3] for word in begun] == [False] * 4
    assert [word[2] for word in early[:2]] == [1500, 5000]
    assert [word[3] for word in early] == [True, False, False, False]
    assert [word[2] for word in more[:3]] == [1500, 5200, 9000]
    assert [word[3] for word in more] == [True, True, False, False]
    assert [word[:2] for word in more] == [word[:2] for word in begun]


@pytest.mark.parametrize(("name", "encode"), [("mulaw", mu_law), ("alaw", a_law)])
def test_telephone_samples_are_decoded(module_page: Page, name: str, encode: Any) -> None:
    samples = (9000 * np.sin(np.arange(800) / 5)).astype(np.int16)
    decoded = module_page.evaluate(
        """async ([format, bytes]) => {
          const { makeDecoder } = await import("/client/index.js");
          const parts = [];
          const decoder = makeDecoder(format, { pre_skip: 0 }, (part) => parts.push(...part));
          decoder.push({ payload: Uint8Array.from(bytes) });
          return parts;
        }""",
        [name, list(encode(samples))],
    )
    assert len(decoded) == 2400
    error = np.array(decoded)[2::3] * 32768 - samples
    assert np.sqrt((error**2).mean()) < 0.02 * 9000


def test_subtitles(module_page: Page) -> None:
    vtt = (
        "\ufeffWEBVTT\r\n\r\nNOTE nothing\r\n\r\nSTYLE\r\n::cue{}\r\n\r\n1\r\n"
        "00:01.500 --> 00:03.000 line:0\r\n"
        "<v Ann>Hello &amp; <i>welcome</i></v>\r\n\r\n01:00:02.000 --> 01:00:04.000\r\n"
        "Hello & welcome\r\nsecond\r\n"
    )
    srt = (
        "1\n00:00:01,000 --> 00:00:02,500\n{\\an8}你好。\n\n"
        "2\n00:00:03,000 --> 00:00:04,000\nBye.\n"
    )
    parse = 'async (text) => (await import("/client/index.js")).parseSubtitles(text)'
    assert module_page.evaluate(parse, vtt) == [
        {"start": 1.5, "end": 3, "text": "Hello & welcome"},
        {"start": 3602, "end": 3604, "text": "second"},
    ]
    assert module_page.evaluate(parse, srt) == [
        {"start": 1, "end": 2.5, "text": "你好。"},
        {"start": 3, "end": 4, "text": "Bye."},
    ]
    refused = module_page.evaluate(
        """async () => {
          const { parseSubtitles } = await import("/client/index.js");
          try { parseSubtitles("no subtitles"); } catch (problem) { return problem.name; }
        }"""
    )
    assert refused == "SyntaxError"


def test_every_export_has_a_type(module_page: Page, page_at: Open, scripted: str) -> None:
    types = module_page.evaluate('async () => (await fetch("/client/index.d.ts")).text()')
    exported = module_page.evaluate('async () => Object.keys(await import("/client/index.js"))')
    missing = [name for name in exported if f" {name}" not in types]
    assert exported
    assert missing == []
