"""Somebody else's captions: each word said once, none out of order, never too late."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest
from conftest import Run
from fake_engine import FakeSynthesizer, Script
from hypothesis import given
from hypothesis import strategies as st

from gateway.characters import expected_seconds
from gateway.cli import main
from gateway.cues import CueError, Update, read_file, read_line
from gateway.follower import FASTEST, Follower, Skipped
from gateway.settling import Settler, tokens

# -- words that are said once ----------------------------------------------------------------------


def said(updates: list[tuple[float, str]], settle: float = 0.7) -> str:
    """All that comes of a series of screens."""
    settler = Settler(settle)
    out = []
    for now, text in updates:
        out += settler.settled(now) + settler.show(text, now)
    out += settler.finish()
    return "".join(word for word, _ in out).strip()


def test_a_growing_caption_is_said_once() -> None:
    words = ["well", "I", "think", "that", "we", "should", "go", "there", "now"]
    screens = [(0.3 * n, " ".join(words[: n + 1])) for n in range(len(words))]
    assert said(screens) == " ".join(words)


def test_corrected_words_are_said_as_corrected() -> None:
    screens = [
        (0.0, "I scream"),
        (0.3, "Ice cream is"),
        (0.6, "Ice cream is never"),
        (2.0, "Ice cream is never enough"),
    ]
    assert said(screens) == "Ice cream is never enough"


def test_what_was_said_is_not_said_again_when_it_is_corrected_late() -> None:
    screens = [
        (0.0, "we met in Reading last year"),
        (2.0, "we met in Redding last year and went"),
        (4.0, "We met in Redding last year, and went home."),
    ]
    assert said(screens) == "we met in Reading last year and went home."


def test_lines_that_roll_up_are_said_once() -> None:
    lines = ["so this is the first line", "and here the second one", "then comes a third", "done."]
    screens = []
    for at, (above, below) in enumerate(zip(["", *lines], [*lines, ""], strict=True)):
        screens.append((2.0 * at, f"{above} {below}".strip()))
    assert said(screens) == " ".join(lines)


def test_mandarin_rolls_up_too() -> None:
    screens = [
        (0.0, "今天天气"),
        (0.4, "今天天气很好"),
        (2.0, "今天天气很好我们去"),
        (4.0, "我们去公园。"),
    ]
    assert said(screens) == "今天天气很好我们去公园。"


def test_captions_that_replace_each_other_are_all_said() -> None:
    assert said([(0.0, "Good morning"), (0.2, "The news"), (0.4, "Rain again")]) == (
        "Good morning The news Rain again"
    )


def test_a_sentence_that_ends_does_not_wait() -> None:
    settler = Settler(0.7)
    assert [word for word, _ in settler.show("Yes, it is.", 1.0)] == ["Yes,", " it", " is."]
    assert settler.deadline is None
    assert settler.show("Well", 2.0) == []
    assert settler.deadline == pytest.approx(2.7)
    assert settler.settled(2.7) == [(" Well", 2.0)]


def test_words_joined_again_are_the_text() -> None:
    text = "Hello there, 你好世界! It's 3.5 km.  Yes"
    assert "".join(tokens(text)) == text


@given(st.integers(1, 7), st.integers(2, 12), st.integers(0, 100))
def test_however_it_rolls_every_word_comes_once(step: int, width: int, seed: int) -> None:
    """A window of words on the screen, which moves on by less than its width."""
    words = [f"w{number}" for number in range(60)]
    step = min(step, width - 1)
    rng = np.random.default_rng(seed)
    now, screens = 0.0, []
    for end in range(step, len(words) + step, step):
        now += float(rng.uniform(0.05, 2.0))
        screens.append((now, " ".join(words[max(0, min(end, len(words)) - width) : end])))
    assert said(screens).split() == words


# -- falling behind --------------------------------------------------------------------------------


def follow(
    captions: list[tuple[float, str]], most_lag: float, pace: float = 1.0
) -> tuple[list[tuple[float, float, str]], list[Skipped]]:
    """Play captions to a listener whose speaker takes `pace` times what a text should:
    (lag, speed, text) of each sentence said."""
    follower = Follower(most_lag)
    heard: list[tuple[float, float, str]] = []
    free, now, coming = 0.0, 0.0, list(captions)
    while coming or follower.waiting or now < free + 3.0:
        while coming and coming[0][0] <= now:
            follower.show(coming.pop(0)[1], now)
        say = follower.next(now, max(0.0, free - now))
        if say is not None:
            start = max(now, free)
            free = start + pace * expected_seconds(say.sentence.text, say.speed)
            heard.append((start - say.sentence.at, say.speed, say.sentence.text))
        now += 0.05
    return heard, follower.skipped


def talk(sentences: int, every: float) -> list[tuple[float, str]]:
    text = "Number {} of what they said was rather long and told us little that was new."
    return [(every * number, text.format(number)) for number in range(sentences)]


def test_who_is_not_behind_hears_everything_at_normal_speed() -> None:
    heard, skipped = follow(talk(20, 7.0), 8.0)
    assert len(heard) == 20
    assert not skipped
    assert {speed for _, speed, _ in heard} == {1.0}
    assert max(lag for lag, _, _ in heard) < 1.0


def test_who_is_a_little_behind_hears_faster_and_misses_nothing() -> None:
    heard, skipped = follow(talk(30, 4.4), 8.0)
    assert len(heard) == 30
    assert not skipped
    assert 1.0 < max(speed for _, speed, _ in heard) <= FASTEST
    assert max(lag for lag, _, _ in heard) <= 8.0


def test_who_is_far_behind_misses_whole_sentences_and_is_told() -> None:
    captions = talk(40, 2.0)
    heard, skipped = follow(captions, 8.0)
    assert skipped
    assert max(speed for _, speed, _ in heard) == FASTEST
    assert max(lag for lag, _, _ in heard) <= 8.0
    told = sorted([text for _, _, text in heard] + [each.text for each in skipped])
    assert told == sorted(text for _, text in captions)
    assert [text for _, _, text in heard] == [
        text for _, text in captions if text in {each[2] for each in heard}
    ]
    assert all(each.lag > 8.0 for each in skipped)
    assert heard[-1][2] == captions[-1][1]


def test_a_silent_writer_ends_the_sentence() -> None:
    follower = Follower(8.0)
    follower.show("and then he said", 0.0)
    assert follower.next(1.0, 0.0) is None
    due = follower.deadline()
    assert due is not None
    say = follower.next(due + 0.01, 0.0)
    assert say is not None
    assert say.sentence == ("and then he said", 0.0)
    assert follower.deadline() is None


# -- files and pipes -------------------------------------------------------------------------------

VTT = """WEBVTT

00:00.000 --> 00:00.600
Hello there.

00:00.200 --> 00:00.900
<v Ann>How are
you today?

00:00:00.400 --> 00:00:01.000
How are you today?
I am well.
"""
SRT = """1
00:00:00,100 --> 00:00:00,500
Hello <i>there</i>.

2
00:00:00,300 --> 00:00:00,700
Good bye.
"""


def test_files_of_both_kinds_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.vtt").write_text(VTT)
    (tmp_path / "b.srt").write_text("\ufeff" + SRT)
    assert read_file(tmp_path / "a.vtt") == [
        Update(0.0, "Hello there."),
        Update(0.2, "How are you today?"),
        Update(0.4, "How are you today? I am well."),
    ]
    assert read_file(tmp_path / "b.srt") == [Update(0.1, "Hello there."), Update(0.3, "Good bye.")]


@pytest.mark.parametrize("content", [b"", b"no captions", b"\xff\xfe\x00", b"WEBVTT\n\n"])
def test_what_is_no_caption_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.vtt").write_bytes(content)
    with pytest.raises(CueError, match=r"x\.vtt"):
        read_file(tmp_path / "x.vtt")
    assert main(["captions", str(tmp_path / "x.vtt"), "-o", str(tmp_path / "o.ogg")]) == 2


def test_lines_are_text_or_json() -> None:
    assert read_line(" Hello.\n", 1.0) == Update(1.0, "Hello.", True)
    assert read_line('{"text": "Hel", "final": false}', 2.0) == Update(2.0, "Hel", False)
    assert read_line('{"text": " "}', 2.0) is None
    assert read_line("\n", 2.0) is None
    for bad in ("{", '{"txt": 1}', '{"text": 1}', '{"text": "x", "final": 1}'):
        with pytest.raises(CueError):
            read_line(bad, 0.0)


# -- the command -----------------------------------------------------------------------------------


async def test_a_file_is_played_and_reported(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.vtt").write_text(VTT)
    out, report, plot = tmp_path / "o.wav", tmp_path / "r.json", tmp_path / "r.png"
    async with run() as running:
        arguments = ["captions", str(tmp_path / "a.vtt"), "-o", str(out), "--url", running.url]
        arguments += ["--json", str(report), "--plot", str(plot)]
        assert await asyncio.to_thread(main, arguments) == 0
        spoken = [request.text for request in running.engine.requests]
    assert spoken == ["Hello there.", "How are you today?", "I am well."]
    result = json.loads(report.read_text())
    assert result["sentences"] == 3
    assert result["skipped"] == []
    assert [each["text"] for each in result["curve"]] == spoken
    assert 0 <= result["lag_p50"] <= result["lag_most"] < 5.0
    assert out.stat().st_size > 3 * 9_600
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert "3 sentences" in capsys.readouterr().err


async def test_piped_lines_are_spoken_as_they_come(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = tmp_path / "lines"
    lines.write_text('Good morning.\n{"text": "How are"}\n{"text": "How are you?"}\nGood bye')
    with lines.open() as pipe:
        monkeypatch.setattr("sys.stdin", pipe)
        async with run() as running:
            arguments = ["captions", "-", "-o", str(tmp_path / "o.ogg"), "--url", running.url]
            assert await asyncio.to_thread(main, arguments) == 0
            spoken = [request.text for request in running.engine.requests]
    assert spoken == ["Good morning.", "How are you?", "Good bye"]


async def test_stale_sentences_are_left_out_and_told(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cues = [f"00:00.{n}00 --> 00:01.000\nThis is what number {n} said.\n" for n in range(8)]
    (tmp_path / "a.vtt").write_text("WEBVTT\n\n" + "\n".join(cues))
    long = FakeSynthesizer(lambda _request, _number: Script(samples=24_000, chunk=4_800))
    report = tmp_path / "r.json"
    async with run(long) as running:
        arguments = ["captions", str(tmp_path / "a.vtt"), "-o", str(tmp_path / "o.ogg")]
        arguments += ["--url", running.url, "--json", str(report), "--max-lag", "1.5"]
        assert await asyncio.to_thread(main, arguments) == 0
        speeds = {request.speed for request in running.engine.requests}
    result = json.loads(report.read_text())
    assert result["skipped"]
    assert result["sentences"] + len(result["skipped"]) == 8
    assert max(speeds) == result["fastest"] == FASTEST
    assert "left out" in capsys.readouterr().err


async def test_a_gateway_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "b.srt").write_text(SRT)
    arguments = ["captions", str(tmp_path / "b.srt"), "-o", str(tmp_path / "o.ogg")]
    assert await asyncio.to_thread(main, [*arguments, "--url", "ws://127.0.0.1:9"]) == 1
