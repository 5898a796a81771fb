"""Word times that the engine tells: on the turn's clock, and not marked as reckoned."""

from __future__ import annotations

import numpy as np
from session_harness import Harness

from engine.api import AudioChunk, WordTime
from gateway.captions import Span, heard_until
from gateway.cutting import TurnPiece, TurnText
from gateway.trimming import LEAD_IN
from gateway.wordtimes import told_words

SENTENCE = "This is a first sentence. "


def piece(text: str) -> TurnPiece:
    turn = TurnText()
    (only,) = [*turn.feed(text), *turn.finish()]
    return only


def told(text: str, *words: tuple[str, int, int]) -> list[WordTime]:
    """Words of the spoken text, in samples of the piece."""
    out, at = [], 0
    for word, start, end in words:
        at = text.index(word, at)
        out.append(WordTime(at, at + len(word), start, end))
        at += len(word)
    return out


def test_words_lie_where_their_piece_does() -> None:
    said = piece("It is ten.").said
    times = (("It", 10_500, 11_000), ("is", 11_000, 13_000), ("ten", 13_500, 19_000))
    found = told_words(said, told(said.text.strip(), *times), 10_600, 18_000)
    # What lies outside the sound that is heard is cut to it.
    assert [(w.start_sample, w.end_sample) for w in found] == [
        (10_600, 11_000), (11_000, 13_000), (13_500, 18_000),
    ]  # fmt: skip
    assert [w.spoken for w in found] == ["It", "is", "ten"]


def test_words_that_say_one_construct_are_one() -> None:
    text = "So $a^2$ holds."
    said = piece(text).said
    spoken = said.text.strip()
    inner = spoken.removeprefix("So ").removesuffix(" holds.").split()
    assert len(inner) > 1
    times = [(word, 1000 * i, 1000 * i + 900) for i, word in enumerate(["So", *inner, "holds"])]
    so, construct, holds = told_words(said, told(spoken, *times), 0, 99_000)
    assert text[construct.start : construct.end] == "$a^2$"
    assert (construct.start_sample, construct.end_sample) == (1000, 1000 * len(inner) + 900)
    assert so.end_sample <= construct.start_sample
    assert construct.end_sample <= holds.start_sample


def test_captions_tell_them_without_the_mark_of_an_estimate() -> None:
    h = Harness()
    h.send("text.append", text=SENTENCE)
    h.send("turn.end")
    silence = 4000
    sound = np.concatenate([np.zeros(silence), np.full(20_000, 0.5)]).astype(np.float32)
    key = h.keys[0]
    this, is_, *rest = told(
        h.requests[0].text,
        ("This", 4000, 8000), ("is", 8000, 10_000), ("a", 10_000, 11_000),
        ("first", 11_000, 16_000), ("sentence", 16_000, 24_000),
    )  # fmt: skip
    h.session.audio(key, AudioChunk(sound[:10_000], words=(this,)), h.now)
    h.session.audio(key, AudioChunk(sound[10_000:], words=(is_,)), h.now)
    end = AudioChunk(np.zeros(0, np.float32), final=True, words=tuple(rest))
    h.session.audio(key, end, h.now)
    h.settle()
    h.take()
    caption = h.messages("caption")[-1]
    assert "estimated" not in caption
    assert [word["text"] for word in caption["words"]] == ["This", "is", "a", "first", "sentence"]
    # The silence before the first sound is not heard, but for a little.
    left_out = silence - LEAD_IN
    starts = [word["start_sample"] for word in caption["words"]]
    assert starts == [at - left_out for at in (4000, 8000, 10_000, 11_000, 16_000)]


def test_words_are_told_as_they_become_certain_where_that_was_asked_for() -> None:
    for early, known in ((False, [None, 2]), (True, [None, 1, 2, 2])):
        h = Harness(start={"early_words": early})
        h.send("text.append", text="Well said. ")
        h.send("turn.end")
        key = h.keys[0]
        well, said = told(h.requests[0].text, ("Well", 0, 4000), ("said", 5000, 9000))
        sound = np.full(10_000, 0.5, np.float32)
        h.session.audio(key, AudioChunk(sound[:1000]), h.now)
        h.take()
        h.session.audio(key, AudioChunk(sound[:8000], words=(well,)), h.now)
        h.take()
        h.session.audio(key, AudioChunk(sound[:8000], words=(said,)), h.now)
        h.take()
        h.session.audio(key, AudioChunk(sound[:0], final=True), h.now)
        h.settle()
        h.take()
        captions = h.messages("caption")
        counts = [len(each["words"]) if "words" in each else None for each in captions]
        assert counts == known
        assert [each["final"] for each in captions] == [False] * (len(captions) - 1) + [True]
        if early:
            assert captions[1]["words"][0] == captions[-1]["words"][0]


def test_what_was_heard_goes_by_them() -> None:
    only = piece(SENTENCE)
    words = told_words(only.said, told(only.said.text, ("This", 0, 20_000)), 0, 24_000)
    span = Span(only.said, only.start, only.end, 0, 24_000, True, words)
    assert heard_until([span], 19_000) == 0
    assert heard_until([span], 21_000) == len("This")
