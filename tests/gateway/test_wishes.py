"""Wishes about how text is read: style, control tags, pronunciation, what stands for code."""

from __future__ import annotations

from dataclasses import replace

from fake_engine import LIMITS
from session_harness import Harness

from gateway.spoken import Lexicon

STYLED = replace(LIMITS, styles=("oral_0", "oral_5", "laugh_1"))
SENTENCE = "This is one sentence."


def speak(h: Harness, text: str = SENTENCE) -> None:
    h.send("text.append", text=text)
    h.send("turn.end")
    h.speak_all()


class TestStyle:
    def test_a_session_has_one(self) -> None:
        h = Harness(limits=STYLED, start=None)
        h.send("session.start", style="oral_5, laugh_1")
        h.take()
        [started] = h.messages("session.started")
        assert started["style"] == "oral_5 laugh_1"
        assert started["styles"] == list(STYLED.styles)
        speak(h)
        assert h.requests[0].style == ("oral_5", "laugh_1")
        assert not h.messages("warning")

    def test_it_changes_between_turns_and_within_one(self) -> None:
        h = Harness(limits=STYLED, start={"style": "oral_5"})
        speak(h)
        h.send("turn.start", style="laugh_1")
        speak(h)
        speak(h)
        h.send("text.append", text=SENTENCE)
        h.send("session.update", style="oral_0", scope="piece")
        speak(h, " And this is another.")
        h.send("session.update", style="")
        speak(h)
        assert [request.style for request in h.requests] == [
            ("oral_5",),
            ("laugh_1",),
            ("oral_5",),
            ("oral_5",),
            ("oral_0",),
            (),
        ]
        assert [message["style"] for message in h.messages("session.updated")] == ["oral_0", ""]

    def test_of_one_kind_the_last_counts(self) -> None:
        h = Harness(limits=STYLED, start={"style": "oral_5 oral_0"})
        speak(h)
        assert h.requests[0].style == ("oral_0",)

    def test_voices_without_styles_say_so_and_speak(self) -> None:
        h = Harness(start=None)
        h.send("session.start", style="cheerful")
        h.take()
        assert h.types() == ["session.started", "warning"]
        [warning] = h.messages("warning")
        assert (warning["code"], warning["field"], warning["request"], warning["available"]) == (
            "unsupported",
            "style",
            "session.start",
            [],
        )
        assert "`cheerful`" in warning["message"]
        assert h.messages("session.started")[0]["style"] == ""
        speak(h)
        assert h.requests[0].style == ()

    def test_a_style_nobody_has_leaves_the_others(self) -> None:
        h = Harness(limits=STYLED)
        h.send("session.update", style="oral_5 sad")
        h.take()
        [warning] = h.messages("warning")
        assert warning["available"] == list(STYLED.styles)
        assert h.messages("session.updated")[0]["style"] == "oral_5"


class TestText:
    def test_control_tags_pass_where_asked_for_and_known(self) -> None:
        text = "Well [laugh] that is funny."
        for limits, wish, spoken in (
            (STYLED, True, text),
            (STYLED, False, "Well that is funny."),
            (LIMITS, True, "Well that is funny."),
        ):
            h = Harness(limits=limits, start=None)
            h.send("session.start", control_tags=wish)
            h.take()
            assert h.messages("session.started")[0]["control_tags"] == (spoken == text)
            assert bool(h.messages("warning")) == (wish and spoken != text)
            speak(h, text)
            assert " ".join(h.requests[0].text.split()) == spoken

    def test_words_are_said_as_the_session_and_then_the_server_says(self) -> None:
        h = Harness(
            lexicon=Lexicon({"nginx": "engine ex", "SQL": "sequel"}),
            start={"lexicon": {"SQL": "ess queue ell"}},
        )
        speak(h, "Nginx speaks SQL now.")
        assert h.requests[0].text == "engine ex speaks ess queue ell now."
        [_, caption] = h.messages("caption")
        assert caption["text"] == "Nginx speaks SQL now."

    def test_a_lexicon_that_cannot_be_used_starts_nothing(self) -> None:
        h = Harness(start=None)
        h.send("session.start", lexicon={"...": "dots"})
        h.take()
        [error] = h.messages("error")
        assert (error["code"], error["field"]) == ("bad_field", "lexicon")
        h.send("session.start")
        h.take()
        assert h.messages("session.started")

    def test_code_emoji_and_links_by_wish(self) -> None:
        h = Harness(
            start={"code_phrase": "Some code.", "emoji": "name", "urls": "drop"},
        )
        speak(h, "Look \U0001f389 at https://example.com/a now.\n```\nx = 1\n```\n")
        said = " ".join(request.text for request in h.requests)
        assert "party popper" in said
        assert "Some code." in said
        assert "example" not in said
