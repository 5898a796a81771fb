"""What of a turn is not spoken, and how its client gets to know."""

from __future__ import annotations

import pytest
from session_harness import Harness


def spoken(*fragments: str, end: str | None = "turn.end") -> Harness:
    h = Harness()
    for fragment in fragments:
        h.send("text.append", text=fragment)
    if end:
        h.send(end)
    h.speak_all()
    return h


def captioned(h: Harness) -> str:
    return "".join(message["text"] for message in h.messages("caption") if message["final"])


@pytest.mark.parametrize(
    ("written", "tag"),
    [
        ("Hello there. <think>And then it broke off. For good.", "<think>"),
        ("Hello there. <THINK id='1'>And then", "<THINK id='1'>"),
        ("Hello there. <think>So.</think> And <!-- what", "<!--"),
        ("<think>Nothing but this.", "<think>"),
        ("🎉 <think>", "<think>"),
    ],
)
def test_a_block_that_takes_the_rest_of_the_turn_is_told(written: str, tag: str) -> None:
    for fragments in ([written], list(written)):
        h = spoken(*fragments)
        [warning] = h.messages("warning")
        assert (warning["code"], warning["turn"]) == ("unclosed", 1)
        assert warning["start"] == written.rindex(tag)
        assert repr(tag) in warning["message"]
        assert not h.messages("error")
        assert h.messages("turn.done")[0]["failed"] == 0


@pytest.mark.parametrize("end", ["turn.start", "session.end"])
def test_it_is_told_however_the_turn_ends(end: str) -> None:
    h = spoken("Hello there. <think>And so", end=end)
    assert [(m["code"], m["start"]) for m in h.messages("warning")] == [("unclosed", 13)]


@pytest.mark.parametrize(
    "written",
    [
        "Hello there. <think>Hm.</think> And on.",
        "Hello there. <think/> And on.",
        "Hello </think>there.",
        "`a <think` is a tag.",
    ],
)
def test_what_is_closed_or_opens_nothing_is_not(written: str) -> None:
    h = spoken(written)
    assert not h.messages("warning")
    assert captioned(h) == written


def test_a_turn_that_is_still_open_may_close_it() -> None:
    h = spoken("Hello there. <think>Hm", end="text.flush")
    assert not h.messages("warning")
    h.send("text.append", text=".</think> And on.")
    h.send("turn.end")
    h.speak_all()
    assert not h.messages("warning")
    assert "And on." in captioned(h)


@pytest.mark.parametrize("written", ["...!?", " \n ", "<think>Never closed.", "**", "🎉"])
def test_a_turn_with_nothing_to_speak_has_no_captions(written: str) -> None:
    h = spoken(written)
    assert not h.messages("caption")
    done = h.messages("turn.done")[0]
    assert (done["pieces"], done["failed"]) == (0, 0)
    assert done["characters"] == len(written)


@pytest.mark.parametrize("before", ["...!? ", " \n ", "🎉 ", "<think>Hm.</think>\n"])
@pytest.mark.parametrize("after", ["", " ...!?", "\n\n"])
def test_what_says_nothing_belongs_to_a_piece_beside_it(before: str, after: str) -> None:
    written = f"{before}Hello there. And how are you?{after}"
    assert captioned(spoken(written)) == written


@pytest.mark.parametrize("after", [" ...", " 🎉", " <think>Never closed."])
def test_what_comes_after_the_last_piece_was_cut_is_in_no_caption(after: str) -> None:
    h = spoken("Hello there.", end="text.flush")
    h.send("text.append", text=after)
    h.send("turn.end")
    h.speak_all()
    assert captioned(h) == "Hello there."
    assert h.messages("turn.done")[0]["characters"] == len("Hello there." + after)


def test_the_lexicon_says_what_the_voices_cannot() -> None:
    h = Harness(start={"lexicon": {"שלום": "shalom"}})
    h.send("text.append", text="Hello שלום world.")
    h.send("turn.end")
    h.speak_all()
    assert [request.text for request in h.requests] == ["Hello shalom world."]
    assert h.messages("caption")[-1]["words"][1]["spoken"] == "shalom"
