"""The page before a scripted engine: its four ways in, faults, and what it keeps."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from browser import chromium, until
from chat_endpoint import chat_endpoint
from conftest import Open
from cuttable import cuttable
from playwright.sync_api import Page, Playwright

from gateway.errors import ERRORS

pytestmark = pytest.mark.browser

SAID = "document.querySelector('.turn:last-child .heard')?.textContent.length"
HEARD = "() => document.querySelector('.turn:last-child')?.dataset.state === 'heard'"
# What was sent and received, by type, in order.
WATCH_WIRE = """
addEventListener("DOMContentLoaded", () => setTimeout(() =>
  voxgate.talk.addEventListener("wire", ({ detail }) =>
    probes.wire.push([detail.direction, detail.message])), 0));
"""


def say(page: Page, text: str) -> None:
    page.fill("#text", text)
    page.press("#text", "Enter")


def sent(page: Page, kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = page.evaluate(
        "(kind) => probes.wire.filter(([way, each]) => way === 'up' && each.type === kind)"
        ".map(([, each]) => each)",
        kind,
    )
    return found


# -- ways in --------------------------------------------------------------------------------------


def test_every_key_goes_out_live(page_at: Open, scripted: str) -> None:
    page = page_at(scripted, script=WATCH_WIRE)
    page.click("#mode-live")
    page.focus("#text")
    page.keyboard.type("Hi, you. 你好")
    assert [message["text"] for message in sent(page, "text.append")] == list("Hi, you. 你好")
    assert sent(page, "turn.end") == []
    # A sentence is spoken while the next one is still being typed.
    until(page, f"() => {SAID} > 2")
    # What is sent may be said already.
    page.keyboard.press("Backspace")
    assert page.input_value("#text") == "Hi, you. 你好"
    page.keyboard.press("Enter")
    until(page, HEARD)
    assert page.text_content(".heard") == "Hi, you. 你好"
    assert page.input_value("#text") == ""


def test_a_chat_endpoint_is_spoken_and_knows_what_was_heard(page_at: Open, scripted: str) -> None:
    page = page_at(scripted)
    page.click("#mode-chat")
    with chat_endpoint() as endpoint:
        page.click("#endpoint summary")
        page.fill("#chat-url", endpoint.url)
        page.fill("#chat-model", "small")
        page.fill("#chat-key", "secret")
        say(page, "Who are you?")
        until(page, HEARD)
        assert page.text_content(".turn:last-child .text") == "Hello there."
        assert endpoint.keys == ["Bearer secret"]
        first = endpoint.asked[0]
        assert first["path"] == "/v1/chat/completions"
        assert (first["model"], first["stream"]) == ("small", True)
        assert first["messages"][-1] == {"role": "user", "content": "Who are you?"}

        endpoint.answer = ["This is ", "a long ", "answer. "] * 40
        say(page, "Tell me more.")
        until(page, f"() => {SAID} > 10")
        page.keyboard.press("Escape")
        page.locator(".unsaid").wait_for()
        heard = page.text_content(".turn:last-child .heard")
        endpoint.answer = ["Fine."]
        say(page, "Why?")
        until(page, HEARD)
        assert endpoint.asked[-1]["messages"][-4:] == [
            {"role": "assistant", "content": "Hello there."},
            {"role": "user", "content": "Tell me more."},
            {"role": "assistant", "content": heard},
            {"role": "user", "content": "Why?"},
        ]

        endpoint.status = 401
        say(page, "And now?")
        page.locator("#banner").wait_for()
        assert "key" in (page.text_content("#banner-text") or "")
    assert "secret" not in page.evaluate("() => JSON.stringify(localStorage)")


def test_asking_again_interrupts(page_at: Open, scripted: str) -> None:
    page = page_at(scripted, script=WATCH_WIRE)
    page.click("#mode-chat")
    say(page, "Something")
    until(page, f"() => {SAID}")
    say(page, "Something else")
    until(page, f"() => voxgate.talk.session.turns.length === 1 && {SAID}")
    assert [message.get("interrupt") for message in sent(page, "turn.start")] == [None, True]
    assert page.locator(".turn .unsaid").count() == 1


def test_a_subtitle_file_is_read_in_its_time(page_at: Open, scripted: str, tmp_path: Path) -> None:
    file = tmp_path / "talk.srt"
    file.write_text(
        "1\n00:10:00,000 --> 00:10:01,000\nOne short.\n\n"
        "2\n00:10:01,500 --> 00:10:02,000\nTwo short.\n"
    )
    page = page_at(scripted, script=WATCH_WIRE)
    page.click("#mode-captions")
    assert page.locator("#speak").is_disabled()
    page.set_input_files("#file", file)
    page.locator("#drop-text", has_text="talk.srt").wait_for()
    times = page.evaluate(
        """async () => {
          const began = performance.now();
          const times = [];
          voxgate.talk.addEventListener("wire", ({ detail: { message } }) => {
            if (message.type === "text.append") times.push(performance.now() - began);
          });
          document.getElementById("speak").click();
          while (times.length < 2) await new Promise((done) => setTimeout(done, 20));
          return times;
        }"""
    )
    # Its silent beginning is cut to a second.
    assert times[0] == pytest.approx(1000, abs=400)
    assert times[1] - times[0] == pytest.approx(1500, abs=400)
    until(page, HEARD)
    assert page.text_content(".heard") == "One short.\nTwo short.\n"


DROP = """([name, text]) => {
  const files = new DataTransfer();
  files.items.add(new File([text], name));
  const over = () => document.querySelectorAll(".over").length;
  const event = (type) => document.getElementById("turns").dispatchEvent(
    new DragEvent(type, { dataTransfer: files, bubbles: true, cancelable: true }));
  event("dragover");
  const shown = over();
  event("drop");
  return [shown, over()];
}"""


def test_a_file_may_be_dropped_anywhere(page_at: Open, scripted: str) -> None:
    page = page_at(scripted)
    vtt = "WEBVTT\n\n00:00.000 --> 00:01.000\nOne short.\n"
    assert page.evaluate(DROP, ["talk.vtt", vtt]) == [2, 0]
    page.locator("#drop-text", has_text="talk.vtt: 1").wait_for()
    assert page.get_attribute("#mode-captions", "aria-selected") == "true"
    page.click("#speak")
    until(page, HEARD)
    assert page.text_content(".heard") == "One short.\n"


def test_captions_that_fall_behind_are_read_faster(page_at: Open, scripted: str) -> None:
    page = page_at(scripted, script=WATCH_WIRE)
    # How late the second one is shows at four seconds; the third is due well after that.
    held = "long tone that is held on and on until four whole seconds have gone by."
    cues = [(0.0, f"A {held}"), (0.4, f"Another {held}"), (6.0, "One short.")]
    lines = [f"00:0{at:.3f} --> 00:09.000\n{text}\n" for at, text in cues]
    page.evaluate(DROP, ["talk.vtt", "\n".join(["WEBVTT\n", *lines])])
    page.locator("#drop-text", has_text="talk.vtt: 3").wait_for()
    page.click("#speak")
    until(page, "() => probes.wire.some(([, each]) => each.type === 'session.update')", seconds=20)
    faster = sent(page, "session.update")[0]
    assert faster["scope"] == "piece"
    assert 1 < faster["speed"] <= 1.4
    page.keyboard.press("Escape")
    until(page, "() => !voxgate.talk.speaking")
    # What is said next is at the speed that was chosen.
    until(page, "() => probes.wire.filter(([, e]) => e.type === 'session.update').length > 1")
    assert sent(page, "session.update")[-1]["speed"] == 1


def test_a_file_that_is_none_is_refused(page_at: Open, scripted: str, tmp_path: Path) -> None:
    file = tmp_path / "talk.vtt"
    file.write_text("nothing in here")
    page = page_at(scripted)
    page.click("#mode-captions")
    page.set_input_files("#file", file)
    page.locator("#banner-text", has_text="talk.vtt").wait_for()


# -- sound ----------------------------------------------------------------------------------------


PITCH = """async (format) => {
  const select = document.getElementById("format");
  select.value = format;
  select.dispatchEvent(new Event("change"));
  const { talk, player } = voxgate;
  const ready = (state) => new Promise((done) => {
    const look = () => (talk.session?.state === state ? done() : setTimeout(look, 20));
    look();
  });
  await ready("open");
  await player.unlock();
  const samples = probes.samples();
  const turn = talk.speak("One tone.");
  const levels = new Float32Array(player.analyser.frequencyBinCount);
  let loudest = 0, level = -200;
  while (!turn.over) {
    player.analyser.getFloatFrequencyData(levels);
    levels.forEach((each, i) => { if (each > level) [level, loudest] = [each, i]; });
    await new Promise((done) => setTimeout(done, 20));
  }
  // The frequency that half a second of the decoded samples has most of.
  let hertz = 0, most = 0;
  for (let each = 150; each < 3000; each += 10) {
    let real = 0, imaginary = 0;
    for (let i = 0; i < 12000; i += 1) {
      const angle = (2 * Math.PI * each * i) / 24000;
      real += samples[6000 + i] * Math.cos(angle);
      imaginary += samples[6000 + i] * Math.sin(angle);
    }
    const power = real * real + imaginary * imaginary;
    if (power > most) [hertz, most] = [each, power];
  }
  const share = most / 6000 ** 2 / 0.3 ** 2;
  return {
    state: turn.state, format: turn.format, decoder: document.getElementById("decoder").textContent,
    seconds: turn.samples / 24000, decoded: samples.length / 24000,
    hertz, share, heard: (loudest * 24000) / 512, level,
  };
}"""


@pytest.mark.parametrize(
    ("format_", "decoder", "without"),
    [
        ("auto", "WebCodecs", ""),
        ("auto", "PCM", "delete globalThis.AudioDecoder;"),
        ("pcm_s16le", "PCM", ""),
        ("mulaw", "µ-law", ""),
    ],
)
def test_every_way_of_decoding_gives_the_same_tone(
    page_at: Open, scripted: str, format_: str, decoder: str, without: str
) -> None:
    page = page_at(scripted, script=without)
    told = page.evaluate(PITCH, format_)
    assert told["state"] == "heard"
    assert told["decoder"] == decoder
    assert told["decoded"] == pytest.approx(told["seconds"], abs=0.03)
    # A tone of one frequency went in: it is what was decoded, and what sounds.
    assert 0.7 < told["share"] < 1.4
    assert told["heard"] == pytest.approx(told["hertz"], abs=30)
    assert told["level"] > -40


def test_a_gap_is_shown_and_does_not_click(page_at: Open, scripted: str) -> None:
    page = page_at(scripted)
    say(page, "This runs dry.")
    until(page, HEARD)
    until(page, "() => document.getElementById('underruns').textContent !== '0'")
    assert page.text_content("#jitter") != "50 ms"


def test_the_sound_comes_back_with_nothing_lost(page_at: Open, scripted: str) -> None:
    """After the system held the audio, and after its device went away."""
    page = page_at(scripted)
    say(page, "A long tone.")
    until(page, "() => voxgate.talk.position()?.sample > 12000")
    page.evaluate("() => voxgate.player.context.suspend()")
    page.wait_for_timeout(300)
    until(page, "() => voxgate.player.state === 'running'")
    place = "() => voxgate.talk.position()?.sample"
    lost = page.evaluate(place)
    page.evaluate("() => void voxgate.player.rebuild()")
    assert until(page, place, seconds=10) >= lost - 4800
    until(page, HEARD)
    assert page.evaluate("() => voxgate.player.context.state") == "running"


def test_the_sound_comes_back_once_the_server_does(page_at: Open, scripted: str) -> None:
    """A device that goes away while the worklet's file cannot be had either."""
    with cuttable(scripted) as proxy:
        page = page_at(proxy.url)
        say(page, "A long tone.")
        until(page, "() => document.querySelector('.turn').dataset.state === 'done'")
        proxy.away = True
        proxy.cut()
        page.evaluate("() => voxgate.player.rebuild()")
        assert page.evaluate("() => voxgate.player.state") == "interrupted"
        proxy.away = False
        until(page, HEARD, seconds=15)
        assert page.text_content(".heard") == "A long tone."


def test_a_tab_that_was_frozen_goes_on(page_at: Open, scripted: str) -> None:
    """As phones and laptops do with pages out of sight: no timer, no message, nothing runs."""
    page = page_at(scripted)
    devtools = page.context.new_cdp_session(page)
    say(page, "A long tone. And one more.")
    until(page, "() => voxgate.talk.position()?.sample > 12000")
    devtools.send("Page.setWebLifecycleState", {"state": "frozen"})
    time.sleep(1.5)
    devtools.send("Page.setWebLifecycleState", {"state": "active"})
    until(page, HEARD)
    assert page.text_content(".heard") == "A long tone. And one more."
    assert page.evaluate("() => voxgate.player.state") == "running"


# -- connections ----------------------------------------------------------------------------------


SOCKETS = """
globalThis.sockets = [];
globalThis.WebSocket = class extends WebSocket {
  constructor(url) {
    super(url);
    sockets.push(url);
  }
};
"""
CONTIGUOUS = """() => {
  globalThis.gaps = [];
  let expected = 0;
  voxgate.talk.addEventListener("packet", ({ detail: { packet } }) => {
    if (packet.position !== expected) gaps.push([expected, packet.position]);
    expected = packet.position + packet.samples;
  });
}"""


def test_a_cut_connection_loses_and_repeats_nothing(page_at: Open, scripted: str) -> None:
    with cuttable(scripted) as proxy:
        page = page_at(proxy.url, script=SOCKETS)
        page.evaluate(CONTIGUOUS)
        text = "A long tone. " + "And some more. " * 3
        say(page, text)
        for place in (12_000, 48_000, 84_000):
            until(page, f"() => voxgate.talk.position()?.sample > {place}")
            proxy.cut()
            until(page, "() => voxgate.talk.session.state === 'resuming'")
            until(page, "() => voxgate.talk.session.state === 'open'")
        until(page, HEARD)
        assert page.evaluate("() => gaps") == []
        assert page.text_content(".heard") == text
        assert page.text_content("#resumes") == "3"
        # A load balancer finds the session's server by it.
        urls = page.evaluate("() => sockets")
        assert len(urls) == 4
        assert re.search(r"/v1/stream\?route=\w{16,}$", urls[0])
        assert len(set(urls)) == 1


def test_text_typed_without_a_connection_is_said_once(page_at: Open, scripted: str) -> None:
    with cuttable(scripted) as proxy:
        page = page_at(proxy.url)
        proxy.away = True
        proxy.cut()
        until(page, "() => voxgate.talk.session.state === 'resuming'")
        say(page, "One short. Two short.")
        proxy.away = False
        until(page, HEARD)
        assert page.locator(".turn").count() == 1
        assert page.text_content(".heard") == "One short. Two short."


def test_an_answer_that_breaks_off_is_asked_for_again(page_at: Open, scripted: str) -> None:
    with cuttable(scripted) as proxy:
        proxy.breaks_at = b'"voice_id"'
        page = page_at(proxy.url)
        until(
            page,
            "() => [...document.querySelectorAll('.voice small')].some((each) => each.textContent)",
            seconds=10,
        )
        assert proxy.breaks_at is None


def test_what_a_lost_session_did_not_say_can_be_said(page_at: Open, scripted: str) -> None:
    with cuttable(scripted) as proxy:
        page = page_at(proxy.url)
        say(page, "A long tone. And the short rest.")
        until(page, "() => voxgate.talk.position()?.sample > 12000")
        proxy.away = True
        proxy.cut()
        page.wait_for_timeout(4200)
        proxy.away = False
        page.locator("#banner-button", has_text="Say the rest").click(timeout=20_000)
        until(page, HEARD)
        parts = page.locator(".turn .heard").all_text_contents()
        assert len(parts) == 2
        assert "".join(parts) == "A long tone. And the short rest."


def test_a_server_with_keys_asks_for_one(keyed: tuple[str, str], page_at: Open) -> None:
    url, key = keyed
    page = page_at(url, connected=False)
    page.locator("#access[open]").wait_for()
    page.fill("#access-key", "vg_wrong")
    page.keyboard.press("Enter")
    page.locator("#access[open]").wait_for()
    page.fill("#access-key", key)
    page.keyboard.press("Enter")
    page.locator('#link[data-state="open"]').wait_for()
    say(page, "One short.")
    until(page, HEARD)
    page.click("#open-wire")
    rows = "\n".join(page.locator("#wire-rows tr").all_text_contents())
    assert "access_token" in rows
    assert key not in rows
    assert key not in page.evaluate("() => JSON.stringify(localStorage)")


# -- what stays -----------------------------------------------------------------------------------


def test_choices_are_kept(page_at: Open, scripted: str) -> None:
    page = page_at(scripted, script=WATCH_WIRE)
    page.check('input[value="bao"]')
    page.select_option("#spoken", "zh")
    page.fill("#speed", "1.2")
    assert sent(page, "session.update")[-1] == {"type": "session.update", "speed": 1.2}
    page.reload()
    page.locator('#link[data-state="open"]').wait_for()
    until(page, "() => probes.wire.length > 1 || true")
    assert page.is_checked('input[value="bao"]')
    assert page.input_value("#speed") == "1.2"
    say(page, "One short.")
    until(page, HEARD)
    assert "Bao" in (page.text_content(".turn .meta") or "")


def test_a_browser_that_keeps_nothing_is_enough(page_at: Open, scripted: str) -> None:
    page = page_at(
        scripted,
        script="""for (const name of ["localStorage", "sessionStorage"]) {
          const refuse = () => { throw new DOMException("no", "SecurityError"); };
          Object.defineProperty(globalThis, name, { get: refuse });
        }""",
    )
    page.click("#theme")
    page.click("#language")
    page.check('input[value="bao"]')
    say(page, "One short.")
    until(page, HEARD)


def test_format_and_bit_rate_are_those_chosen(page_at: Open, scripted: str) -> None:
    page = page_at(scripted, script=WATCH_WIRE)
    page.select_option("#bitrate", "96000")
    until(page, "() => probes.wire.some(([, each]) => each.bitrate === 96000)")
    page.select_option("#format", "pcm_s16le")
    until(page, "() => document.getElementById('decoder').textContent === 'PCM'")
    started = sent(page, "session.start")
    assert [(each["format"], each["bitrate"]) for each in started[-2:]] == [
        ("opus", 96_000), ("pcm_s16le", 96_000),
    ]  # fmt: skip
    assert page.is_disabled("#bitrate")


def test_a_voice_is_previewed_beside_the_conversation(page_at: Open, scripted: str) -> None:
    page = page_at(scripted)
    page.click('.preview[data-voice="ann"]')
    until(page, "() => document.querySelector('.preview[aria-pressed]')")
    until(page, "() => voxgate.player.analyser && probes.band(100, 3000) > 0.5")
    until(page, "() => !document.querySelector('.preview[aria-pressed]')")
    assert page.locator(".turn").count() == 0


MARKS = """() => {
  const canvas = document.getElementById("wave");
  const { width, height } = canvas;
  const probe = document.createElement("i");
  probe.style.color = "var(--cut)";
  document.body.append(probe);
  const cut = getComputedStyle(probe).color.match(/\\d+/g).map(Number);
  const pixels = canvas.getContext("2d").getImageData(0, 1, width, 1).data;
  const found = [];
  for (let x = 0; x < width; x += 1) {
    if (cut.every((value, i) => Math.abs(pixels[4 * x + i] - value) < 3)) found.push(x / width);
  }
  return [cut, found];
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_cuts_are_marked_on_the_waveform(page_at: Open, scripted: str, scheme: str) -> None:
    page = page_at(scripted, color_scheme=scheme, viewport={"width": 1280, "height": 800})
    say(page, "One tone is here. And another one.")
    until(page, HEARD)
    colour, found = page.evaluate(MARKS)
    assert colour == ([201, 121, 26] if scheme == "light" else [233, 161, 59])
    turn = page.evaluate(
        "async () => { const { wave } = voxgate; const { turn } = wave;"
        " return [turn.cues[1].start_sample, Math.max(96000, turn.peaks.length * 480)]; }"
    )
    assert found, "no mark"
    assert found[0] == pytest.approx(turn[0] / turn[1], abs=0.005)
    assert max(found) - min(found) < 0.01


def test_figures_are_those_of_the_server_and_the_turn(page_at: Open, scripted: str) -> None:
    page = page_at(scripted)
    for _ in range(2):
        say(page, "One short.")
        until(page, HEARD)
    packet, sound = (
        int((page.text_content(at) or "").removesuffix(" ms"))
        for at in ("#first-packet", "#first-sound")
    )
    assert 0 < packet < sound < 3000
    until(page, "() => Number(document.getElementById('sessions').textContent) >= 1")
    assert "2 turns" in (page.get_attribute("#history", "aria-label") or "")
    assert "0 gaps" in (page.get_attribute("#strip", "aria-label") or "")
    painted = """(id) => {
      const canvas = document.getElementById(id);
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      return new Set(new Uint32Array(data.buffer)).size;
    }"""
    assert page.evaluate(painted, "strip") > 3
    assert page.evaluate(painted, "history") > 3


DRAWN = """async () => {
  let times = 0;
  const { clearRect } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.clearRect = function (...at) {
    if (this.canvas.id === "wave") times += 1;
    return clearRect.apply(this, at);
  };
  await new Promise((done) => setTimeout(done, 1200));
  return times;
}"""


def test_who_wants_less_motion_gets_less(page_at: Open, scripted: str) -> None:
    drawn = []
    for motion in ("no-preference", "reduce"):
        page = page_at(scripted, reduced_motion=motion)
        say(page, "A long tone.")
        until(page, "() => voxgate.talk.position()?.sample > 4800")
        drawn.append(page.evaluate(DRAWN))
    assert drawn[0] > 8
    assert drawn[1] <= 4
    moving = "() => [...document.querySelectorAll('*')].filter((each) =>"
    moving += " getComputedStyle(each).transitionDuration !== '0s').length"
    assert page.evaluate(moving) == 0


# What only a client with a fault of its own is told.
_FAULTS = {
    "already_started", "bad_field", "bad_json", "binary_not_accepted", "no_tokens", "no_turn",
    "not_started", "replay_gap", "session_ending", "session_expired", "start_timeout",
    "too_many_flushes", "unknown_format", "unknown_session", "unknown_type",
}  # fmt: skip


def test_errors_say_what_to_do_in_chinese_too(page_at: Open, scripted: str) -> None:
    page = page_at(scripted)
    keys = page.evaluate("async () => Object.keys((await import('/app/strings.js')).STRINGS.zh)")
    told = {key.removeprefix("error_") for key in keys if key.startswith("error_")}
    assert set(ERRORS) - _FAULTS <= told


def test_the_wire_is_shown_without_secrets(page_at: Open, scripted: str) -> None:
    page = page_at(scripted)
    say(page, "One short.")
    until(page, HEARD)
    page.click("#open-wire")
    rows = "\n".join(page.locator("#wire-rows tr").all_text_contents())
    for kind in ("session.start", "session.started", "text.append", "turn.done", "audio ×"):
        assert kind in rows
    assert '"token":"…"' in rows


def test_the_interface_is_chinese_where_the_browser_is(page_at: Open, scripted: str) -> None:
    page = page_at(scripted, locale="zh-CN")
    assert page.text_content("#speak") == "朗读"
    assert page.get_attribute("html", "lang") == "zh-CN"
    page.click("#language")
    assert page.text_content("#speak") == "Speak"
    keys = "async () => { const { STRINGS } = await import('/app/strings.js'); return STRINGS; }"
    strings = page.evaluate(keys)
    assert set(strings["en"]) <= set(strings["zh"])


def test_200_turns_leave_nothing_behind(page_at: Open, scripted: str) -> None:
    page = page_at(scripted)
    devtools = page.context.new_cdp_session(page)
    devtools.send("Performance.enable")

    def speak(turns: int) -> None:
        page.evaluate(
            """async (turns) => {
              for (let i = 0; i < turns; i += 10) {
                for (let k = 0; k < 10; k += 1) voxgate.talk.speak("One short.");
                while (voxgate.talk.session.turns.length) {
                  await new Promise((done) => setTimeout(done, 20));
                }
              }
            }""",
            turns,
        )

    def sizes() -> dict[str, float]:
        for _ in range(3):
            devtools.send("HeapProfiler.collectGarbage")
        told = devtools.send("Performance.getMetrics")["metrics"]
        return {each["name"]: each["value"] for each in told}

    speak(20)
    before = sizes()
    speak(200)
    after = sizes()
    assert after["Nodes"] <= before["Nodes"] + 20
    assert after["JSEventListeners"] <= before["JSEventListeners"] + 5
    assert after["JSHeapUsedSize"] <= before["JSHeapUsedSize"] + 400_000


# Speaks as soon as it is connected, and tells when the button is there. What a test evaluates
# counts as a gesture, so the page has to do both by itself.
UNTOUCHED = """
const look = setInterval(() => {
  if (!document.querySelector('#link[data-state="open"]')) return;
  clearInterval(look);
  voxgate.talk.speak("This is said without a click, and goes on for a while. ".repeat(5));
  setInterval(() => {
    const held = [...document.querySelectorAll("button")].some(
      (button) => button.checkVisibility() && button.textContent === "Turn the sound on");
    if (held) console.log("held back");
  }, 100);
}, 100);
"""


def test_one_button_brings_the_sound_that_a_browser_holds_back(
    driver: Playwright, scripted: str
) -> None:
    with chromium(driver, "--autoplay-policy=document-user-activation-required") as browser:
        page = browser.new_page(locale="en-US")
        page.add_init_script(UNTOUCHED)
        with page.expect_console_message(lambda message: message.text == "held back"):
            page.goto(scripted)
        page.get_by_role("button", name="Turn the sound on").click()
        until(page, "() => voxgate.player.state === 'running'")
        page.get_by_role("button", name="Turn the sound on").wait_for(state="hidden")
