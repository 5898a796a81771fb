"""An engine that dies in the middle of what is heard: the next one says the rest."""

from __future__ import annotations

import numpy as np
import pytest
from session_harness import Harness
from test_told_words import told

from engine.api import AudioChunk
from gateway.settings import Settings

SENTENCE = "One two, three four five."
SAID = (("One", 0, 5000), ("two", 5000, 10_000), ("three", 10_000, 40_000))
REST = (("three", 0, 6000), ("four", 6000, 9000), ("five", 9000, 12_000))


def speak(
    h: Harness, samples: int, *words: tuple[str, int, int], final: bool = False, silent: int = 0
) -> None:
    """A part of the piece asked for last, with the times of words in it."""
    key, text = h.keys[-1], h.requests[-1].text
    sound = np.full(samples, 0.5, np.float32)
    sound[:silent] = 0.0
    if final:
        del h.engine[key]
    h.session.audio(key, AudioChunk(sound, final=final, words=tuple(told(text, *words))), h.now)
    h.settle()
    h.take()


def broken(settings: Settings | None = None) -> Harness:
    """A sentence that broke off in the middle of its third word."""
    h = Harness(settings or Settings())
    h.send("text.append", text=SENTENCE)
    h.send("turn.end")
    speak(h, 24_000, *SAID)
    h.fail(h.keys[0], "engine_restarting", retryable=True)
    h.take()
    return h


def test_the_rest_is_said_from_the_word_that_broke_off_on() -> None:
    h = broken()
    h.wait(1.0)
    assert [request.text for request in h.requests] == [SENTENCE, "three four five."]
    before = sum(packet.header.samples for packet in h.packets())
    speak(h, 12_000, *REST, final=True)
    assert not h.messages("error")
    (done,) = h.messages("turn.done")
    assert (done["pieces"], done["failed"]) == (1, 0)
    caption = h.messages("caption")[-1]
    words = caption["words"]
    assert [word["text"] for word in words] == ["One", "two", "three", "four", "five"]
    assert [SENTENCE[word["start"] : word["end"]] for word in words] == [w["text"] for w in words]
    times = [at for word in words for at in (word["start_sample"], word["end_sample"])]
    assert times == sorted(times)
    assert times[:4] == [0, 5000, 5000, 10_000]
    # What was sent before stays as it was; the rest lies after it, on the same clock.
    assert times[4] >= 24_000
    assert times[4] == pytest.approx(before, abs=480)
    assert caption["end_sample"] == times[-1]
    positions = [packet.header.position for packet in h.packets()]
    assert positions == sorted(set(positions))


def test_nothing_of_it_clicks() -> None:
    h = broken()
    h.wait(1.0)
    speak(h, 12_000, *REST, final=True, silent=2400)
    audio = np.concatenate([packet.pcm for packet in h.packets()])
    break_and_silence = audio[23_000:25_600]
    assert break_and_silence[0] > 0.4
    assert break_and_silence[-1] == 0.0
    # Not a step of half the range: a slope of five milliseconds.
    assert np.abs(np.diff(break_and_silence)).max() < 0.01


def test_a_cancel_in_the_rest_tells_what_was_heard() -> None:
    h = broken()
    h.wait(1.0)
    speak(h, 9000, REST[0])
    h.send("turn.cancel", played_samples=15_000)
    h.take()
    assert h.messages("turn.cancelled")[-1]["spoken"].rstrip(", ") == "One two"
    again = broken()
    again.wait(1.0)
    speak(again, 9000, *REST[:2])
    again.send("turn.cancel", played_samples=33_000)
    again.take()
    assert again.messages("turn.cancelled")[-1]["spoken"].rstrip() == "One two, three"


def test_it_may_break_off_more_than_once() -> None:
    h = broken()
    h.wait(1.0)
    speak(h, 7000, *REST[:1])
    h.fail(h.keys[-1], "engine_restarting", retryable=True)
    h.wait(2.0)
    assert h.requests[-1].text == "four five."
    speak(h, 6000, ("four", 0, 3000), ("five", 3000, 6000), final=True)
    assert not h.messages("error")
    words = h.messages("caption")[-1]["words"]
    assert [word["text"] for word in words] == ["One", "two", "three", "four", "five"]
    times = [word["start_sample"] for word in words]
    assert times == sorted(times)


def test_what_always_breaks_off_comes_to_an_end() -> None:
    h = broken()
    for _ in range(5):
        h.wait(1.0)
        if not h.engine:
            break
        speak(h, 4000)
        h.fail(h.keys[-1], "piece_failed", retryable=True)
        h.take()
    assert len(h.requests) == 3
    assert [error["code"] for error in h.messages("error")] == ["piece_failed"]


def test_an_engine_that_stays_away_is_told_with_what_was_lost() -> None:
    h = broken(Settings(piece_retry_seconds=2.0))
    for _ in range(20):
        h.wait(1.0)
        if not h.engine:
            break
        h.fail(h.keys[-1], "engine_restarting", retryable=True)
        h.take()
    (error,) = h.messages("error")
    assert error["code"] == "engine_restarting"
    assert SENTENCE[error["start"] : error["end"]].lstrip(", ") == "three four five."
    assert h.messages("turn.done")[0]["failed"] == 1


def test_a_sentence_said_to_its_last_word_lacks_nothing() -> None:
    h = Harness()
    h.send("text.append", text="One two.")
    h.send("turn.end")
    speak(h, 24_000, ("One", 0, 5000), ("two", 5000, 10_000))
    h.fail(h.keys[0], "engine_restarting", retryable=True)
    h.wait(1.0)
    h.take()
    assert len(h.requests) == 1
    assert not h.messages("error")
    assert h.messages("turn.done")[0]["failed"] == 0


@pytest.mark.parametrize(("samples", "again"), [(12_000, True), (48_000, False)])
def test_where_no_word_is_known_only_a_beginning_is_said_again(samples: int, again: bool) -> None:
    h = Harness()
    h.send("text.append", text=SENTENCE)
    h.send("turn.end")
    speak(h, samples)
    h.fail(h.keys[0], "engine_restarting", retryable=True)
    h.wait(1.0)
    h.take()
    assert [request.text for request in h.requests] == [SENTENCE] * (1 + again)
    assert len(h.messages("error")) == (not again)


def test_what_runs_away_while_it_is_heard_ends() -> None:
    h = Harness()
    h.send("text.append", text=SENTENCE)
    h.send("turn.end")
    speak(h, 24_000, *SAID)
    h.fail(h.keys[0], "runaway", retryable=True)
    h.wait(1.0)
    h.take()
    assert len(h.requests) == 1
    assert h.messages("error")[0]["code"] == "runaway"
