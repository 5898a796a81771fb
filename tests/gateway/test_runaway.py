from __future__ import annotations

import json
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import soundfile
from fake_engine import sweep
from hypothesis import given
from hypothesis import strategies as st
from session_harness import Harness

from engine.api import SAMPLE_RATE, AudioChunk, Pcm
from gateway.runaway import RunawayGuard, Verdict, features, sameness

HERE = Path(__file__).parent / "pieces"
INDEX = json.loads((HERE / "embedded_voice.json").read_text())
VOICE, _ = soundfile.read(HERE / "embedded_voice.flac", dtype="float32")
PIECES = np.split(VOICE, np.cumsum([piece["samples"] for piece in INDEX])[:-1])


def verdict(
    text: str, audio: Pcm, chunk: int = 1024, speed: float = 1.0
) -> tuple[Verdict | None, float]:
    """What the guard says, and after how many seconds."""
    guard = RunawayGuard(text, speed)
    for at in range(0, audio.size, chunk):
        found = guard.feed(audio[at : at + chunk])
        if found is not None:
            return found, at / SAMPLE_RATE
    return None, audio.size / SAMPLE_RATE


def going_round(piece: Pcm, start: float, length: float, seconds: float) -> Pcm:
    """A piece that repeats a part of itself, each time a little differently."""
    first, size = int(start * SAMPLE_RATE), int(length * SAMPLE_RATE)
    rounds = int(seconds / length)
    audio = np.concatenate((piece[:first], np.tile(piece[first : first + size], rounds)))
    noise = np.random.default_rng(1).normal(0.0, 0.002, audio.size)
    return (audio + noise).astype(np.float32)


def test_what_ends_by_itself_is_left_alone() -> None:
    for piece, audio in zip(INDEX, PIECES, strict=True):
        for speed in (0.5, 1.0, 2.0):
            assert verdict(piece["text"], audio, speed=speed)[0] is None


def test_speech_is_never_as_like_itself_as_a_loop_is() -> None:
    frames = VOICE[: VOICE.size // 480 * 480].reshape(-1, 480)
    found = [sameness(features(frames[at : at + 230])) for at in range(0, len(frames) - 230, 7)]
    assert 0.1 < max(found) < 0.65


@pytest.mark.parametrize("length", [0.2, 0.35, 0.7, 1.0])
def test_going_round_is_noticed_before_it_gets_long(length: float) -> None:
    text = "I said that he would come."
    noticed = []
    for piece in PIECES:
        if piece.size > (length + 0.1) * SAMPLE_RATE:
            found, after = verdict(text, going_round(piece, 0.1, length, 12.0))
            noticed.append((found, after < 9.0))
    assert noticed
    assert set(noticed) == {("repetition", True)}


def test_a_sound_that_is_stuck_is_noticed() -> None:
    hum = 0.1 * np.sin(2 * np.pi * 140 * np.arange(12 * SAMPLE_RATE) / SAMPLE_RATE)
    assert verdict("Hello there, my friend.", hum.astype(np.float32))[0] == "repetition"


def test_a_text_that_repeats_itself_may_be_spoken() -> None:
    """The same sound again and again, for as long as the text is."""
    text = "No, no, no, no, no, no, no, no, no, no, no, no, no, no, no, no. " * 2
    audio = going_round(PIECES[0], 0.1, 0.5, 7.0)
    assert verdict(text, audio)[0] is None


@pytest.mark.parametrize("lead", [0.0, 1.0])
def test_silence_without_end_is_noticed(lead: float) -> None:
    rng = np.random.default_rng(0)
    quiet = rng.uniform(-0.002, 0.002, 5 * SAMPLE_RATE).astype(np.float32)
    audio = np.concatenate((sweep(int(lead * SAMPLE_RATE)), quiet))
    found, after = verdict("How are you today, my friend?", audio)
    assert found == "silence"
    assert after == pytest.approx(lead + 2.5, abs=0.1)


def test_babble_runs_into_the_length_its_text_allows() -> None:
    rng = np.random.default_rng(0)
    babble = np.concatenate([PIECES[index] for index in rng.permutation(len(PIECES))] * 2)
    found, after = verdict("Yes, I know.", babble)
    assert found == "length"
    assert 4.0 < after < 8.0
    assert verdict("1234567890 1234567890 1234567890", babble[: 15 * SAMPLE_RATE])[0] is None


@given(st.lists(st.integers(1, 7000), min_size=1, max_size=9))
def test_chunks_do_not_matter(sizes: list[int]) -> None:
    audio = going_round(PIECES[3], 0.1, 0.4, 6.0)
    guard, sizes_again = RunawayGuard("Well then.", 1.0), count()
    found, at = None, 0
    while found is None and at < audio.size:
        size = sizes[next(sizes_again) % len(sizes)]
        found, at = guard.feed(audio[at : at + size]), at + size
    assert found == "repetition"


# -- in a session ----------------------------------------------------------------------------------

SENTENCE, SECOND = "This is the first sentence. ", "And this is the second one. "


def feed(h: Harness, key: int, pcm: Pcm, *, final: bool = False, truncated: bool = False) -> None:
    h.session.audio(key, AudioChunk(pcm, final=final, truncated=truncated), h.now)
    h.settle()


def two_pieces() -> Harness:
    h = Harness(start={"seed": 7, "live": False}, make_guard=RunawayGuard)
    h.send("text.append", text=SENTENCE + SECOND)
    h.send("turn.end")
    return h


def silence(seconds: float) -> Pcm:
    return np.zeros(int(seconds * SAMPLE_RATE), np.float32)


def test_what_nobody_heard_is_spoken_again_with_another_seed() -> None:
    h = two_pieces()
    key = h.keys[0]
    feed(h, key, silence(3.0))
    assert h.cancelled == [key]
    h.wait(1.0)
    again = [request for request in h.requests if request.text == h.requests[0].text]
    assert len(again) == 2
    assert again[0].seed != again[1].seed
    h.speak_all()
    (done,) = h.messages("turn.done")
    assert (done["failed"], done["pieces"]) == (0, 2)
    assert not h.messages("error")
    assert h.observer.runaways == {("silence", "retried"): 1}


def test_what_was_heard_ends_cleanly_and_the_turn_goes_on() -> None:
    h = two_pieces()
    feed(h, h.keys[0], np.full(9_600, 0.3, np.float32))
    assert h.take()
    feed(h, h.keys[0], silence(3.0))
    assert h.cancelled == [h.keys[0]]
    h.speak_all()
    (error,) = h.messages("error")
    assert (error["code"], error["piece"]) == ("runaway", 0)
    (done,) = h.messages("turn.done")
    assert (done["failed"], done["pieces"]) == (1, 2)
    assert [caption["piece"] for caption in h.messages("caption") if caption["final"]] == [0, 1]
    assert h.observer.runaways == {("silence", "ended"): 1}


def test_trying_again_has_an_end() -> None:
    h = two_pieces()
    for _ in range(3):
        feed(h, min(h.engine), silence(3.0))
        h.wait(1.0)
    h.speak_all()
    assert h.observer.runaways == {("silence", "retried"): 2, ("silence", "ended"): 1}
    assert [error["code"] for error in h.messages("error")] == ["runaway"]


def test_a_piece_that_ran_to_the_engines_limit_is_tried_again_too() -> None:
    h = two_pieces()
    key = h.keys[0]
    feed(h, key, np.full(9_600, 0.3, np.float32), final=True, truncated=True)
    h.engine.pop(key)
    h.wait(1.0)
    assert key in h.engine
    h.speak_all()
    assert h.messages("turn.done")[0]["failed"] == 0
    assert h.observer.runaways == {("limit", "retried"): 1}
