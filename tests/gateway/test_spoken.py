"""What is spoken of written text, on a table of hand-checked texts, and by each setting."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import pytest

from gateway.cutting import TurnText
from gateway.spoken import Lexicon, LexiconError, Span, SpokenSettings, load_lexicon, speak
from gateway.spoken.latex import in_words
from gateway.spoken.lexicon import MAX_ENTRIES

_CASES = Path(__file__).with_name("spoken_cases.txt")
_ESCAPE = re.compile(r"\\(u[0-9a-f]{4}|.)")


def unescaped(text: str) -> str:
    plain = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}
    return _ESCAPE.sub(lambda m: plain.get(m[1]) or chr(int(m[1][1:], 16)), text)


def cases() -> list[tuple[str, str]]:
    lines = [
        unescaped(line)
        for line in _CASES.read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#: ")
    ]
    return list(zip(lines[::2], lines[1::2], strict=True))


@pytest.mark.parametrize(("written", "spoken"), cases())
def test_cases(written: str, spoken: str) -> None:
    turn = TurnText()
    pieces = turn.feed(written.replace("¦", "")) + turn.finish()
    assert [piece.text for piece in pieces] == written.split("¦")
    assert [piece.spoken for piece in pieces] == [part.strip() for part in spoken.split("¦")]
    turn = TurnText()
    one_by_one = [piece for char in written.replace("¦", "") for piece in turn.feed(char)]
    assert one_by_one + turn.finish() == pieces


def test_a_code_block_is_said_as_the_settings_have_it() -> None:
    text = "Look here:\n```\nx = 1\n```\nDone."
    assert speak(text, SpokenSettings(code_phrase="See the screen.")).text == (
        "Look here: See the screen. Done."
    )
    assert speak(text, SpokenSettings(code_phrase="")).text == "Look here: Done."
    assert speak(text, SpokenSettings(language="zh")).text == "Look here: 代码略。Done."


def test_a_long_code_phrase_may_take_two_pieces() -> None:
    turn = TurnText(SpokenSettings(code_phrase="There is some code. Please look at it."))
    pieces = turn.feed("Here:\n```\nx\n```\nThat was it.") + turn.finish()
    assert [piece.spoken for piece in pieces] == [
        "Here:",
        "There is some code.",
        "Please look at it.",
        "That was it.",
    ]
    assert "".join(piece.text for piece in pieces) == "Here:\n```\nx\n```\nThat was it."


def test_a_fence_ends_only_with_its_own_kind() -> None:
    text = "````\n```\n~~~\n  x ```` y\n  `````  \nDone."
    assert speak(text).text == "Code omitted. Done."


def test_emoji_may_be_named() -> None:
    named = SpokenSettings(emoji="name")
    assert speak("Good 😀.", named).text == "Good grinning face."
    assert speak("好😀的 🇫🇷", named).text == "好 grinning face 的 flag"
    assert speak("a❤️b", named).text == "a heavy black heart b"


@pytest.mark.parametrize(
    ("urls", "spoken"),
    [
        ("host", "See a.io and b.io."),
        ("drop", "See and."),
        ("keep", "See https://a.io/x?y and http://u@b.io:80/."),
    ],
)
def test_bare_links_go_by_rule(urls: Literal["host", "drop", "keep"], spoken: str) -> None:
    written = "See https://a.io/x?y and http://u@b.io:80/."
    assert speak(written, SpokenSettings(urls=urls)).text == spoken


def test_mail_addresses_are_said() -> None:
    assert speak("Write <mailto:a@b.io> now").text == "Write a@b.io now"


def test_control_tags_pass_only_where_allowed() -> None:
    text = "Ha [laugh] so[uv_break] [oral_2] it [Stts] is [spk_emb][Laugh_1]."
    assert speak(text).text == "Ha so it is."
    allowed = speak(text, SpokenSettings(control_tags=True)).text
    assert allowed == "Ha [laugh] so[uv_break] [oral_2] it is [Laugh_1]."


@pytest.mark.parametrize(
    "hidden",
    ["[**laugh**]", "&#91;laugh]", "\\[laugh]", "[la<b></b>ugh]", "[la[laugh]ugh]", "[`Stts`]"],
)
def test_markup_cannot_smuggle_a_control_tag(hidden: str) -> None:
    for text in (speak(f"say {hidden} now").text, speak(f"say {hidden}").text):
        assert "[laugh]" not in text
        assert "[Stts]" not in text


_FORMULAS = [
    (r"a \times b", "a times b", "a 乘 b"),
    (r"\Delta x \neq \varphi", "delta x is not equal to phi", "delta x 不等于 phi"),
    (r"x^{10} - y_{ij}", "x to the power of 10 minus y sub ij", "x 的次方是 10 减 y 下标 ij"),
    (r"\int_0^1 f(x) dx", "the integral from 0 to 1 f x dx", "积分 从 0 到 1 f x dx"),
    (r"\mathrm{sin} \, \theta", "sin theta", "sin theta"),
    (r"90^\circ", "90 degrees", "90 度"),
    (r"\frac12 + \sqrt x", "1 over 2 plus the square root of x", "1 除以 2 加 根号 x"),
    (r"\frac{\pi}{-}", "pi over minus", "pi 除以 减"),
    (r"\left( a , b \right) \\ c", "a , b c", "a , b c"),
    (r"5\% \foo \$ ∪", "5 percent foo ∪", "5 百分之 foo ∪"),
    (r"x^", "x to the power of", "x 的次方是"),
    ("{" * 20 + "a" + "}" * 20, "a", "a"),
]


@pytest.mark.parametrize(("formula", "english", "mandarin"), _FORMULAS)
def test_formulas_in_words(formula: str, english: str, mandarin: str) -> None:
    assert in_words(formula, mandarin=False) == english
    assert in_words(formula, mandarin=True) == mandarin


def test_what_only_looks_like_markup_is_said() -> None:
    for text in (
        "5 * 4 and 2 ** 3",
        "a <b and c",
        "[never closed and so on",
        "a || b is a|b and a[i]",
        "$5 - $6 or 5$",
        "x &unknown; y & z",
        "http is a word, www too",
        "it costs $ 5",
        "a\\b",
        "so ![then",
        "【注意】看",
        "a <! b",
    ):
        assert speak(text).text == text


def test_half_open_markup_is_plain_text_in_the_end() -> None:
    assert speak("see [this](http://a.io").text == "see [this](a.io"
    assert speak("so `it is").text == "so it is"
    assert speak("take $x^2").text == "take $x^2"
    assert speak("hm <!-- never closed").text == "hm"
    assert speak("hm <think>never closed").text == "hm"
    assert speak("so [" + "a" * 3000 + "](b)").text == "so [" + "a" * 3000 + "](b)"


def test_runs_and_links_beyond_reason_are_passed_over() -> None:
    assert speak("a " + "*" * 500 + " b " + "`" * 500 + " c").text == "a b c"
    assert speak("see http://a.io/" + "x" * 2000).text.startswith("see http://a.io/xx")


def test_an_emoji_beyond_reason_is_dropped() -> None:
    assert "grin" not in speak("a " + "👩\u200d" * 80 + "👩 b", SpokenSettings(emoji="name")).text


def test_spans_map_a_replacement_whole_and_plain_text_by_part() -> None:
    said = speak(
        "Pay **¥3.5** to ACME, please.", SpokenSettings(lexicon=Lexicon({"ACME": "ack me"}))
    )
    assert said.text == "Pay ¥3.5 to ack me, please."
    assert said.spans == (
        Span(0, 4, 0, 4, True),
        Span(4, 8, 6, 10, True),
        Span(8, 12, 12, 16, True),
        Span(12, 18, 16, 20, False),
        Span(18, 27, 20, 29, True),
    )
    assert said.written(5, 7) == (7, 9)
    assert said.written(13, 14) == (16, 20)
    assert said.written(6, 20) == (8, 22)
    for low, high in ((3, 3), (-1, 2), (0, 28)):
        with pytest.raises(ValueError, match="no spoken text"):
            said.written(low, high)


def test_pieces_carry_spans_into_the_turn() -> None:
    turn = TurnText()
    pieces = turn.feed("First of all. Then **it** is.") + turn.finish()
    assert pieces[1].spans == (
        Span(0, 5, 14, 19, True),
        Span(5, 7, 21, 23, True),
        Span(7, 11, 25, 29, True),
    )
    assert pieces[1].said.written(5, 7) == (21, 23)


def test_the_lexicon_takes_the_longest_word() -> None:
    lexicon = Lexicon(
        {
            "GPT-4": "G P T four",
            "GPT-4o": "G P T four oh",
            "sql": "sequel",
            "重庆": "崇庆",
            "C++": "C plus plus",
        }
    )
    settings = SpokenSettings(lexicon=lexicon)
    for written, spoken in (
        ("GPT-4o and GPT-4.", "G P T four oh and G P T four."),
        ("SQL, Sql and sql", "sequel, sequel and sequel"),
        ("MySQL and sqlite", "MySQL and sqlite"),
        ("gpt-4 stays", "gpt-4 stays"),
        ("我在重庆用SQL写C++代码", "我在崇庆用sequel写C plus plus代码"),
        ("sql's end", "sequel's end"),
        ("éSQL", "éSQL"),
    ):
        assert speak(written, settings).text == spoken
    assert len(lexicon) == 5


def test_the_session_lexicon_goes_before_the_server_one() -> None:
    server = Lexicon({"a1": "server", "b2": "both"})
    session = Lexicon({"a1": "session"})
    settings = SpokenSettings(lexicon=session.over(server))
    assert speak("a1 b2", settings).text == "session both"
    assert session.over(Lexicon({})) is session


def test_a_session_may_add_as_many_words_as_the_server_has() -> None:
    server = Lexicon({f"server{number}": "yes" for number in range(MAX_ENTRIES)})
    session = Lexicon({f"session{number}": "yes" for number in range(MAX_ENTRIES)})
    both = session.over(server)
    assert len(both) == 2 * MAX_ENTRIES
    settings = SpokenSettings(lexicon=both)
    assert speak("Server7 and session4999, server", settings).text == "yes and yes, server"


def test_the_server_lexicon_is_a_file(tmp_path: Path) -> None:
    assert len(load_lexicon("")) == 0
    file = tmp_path / "words.json"
    file.write_text('{"重庆": "崇庆", "sql": "sequel"}', encoding="utf-8")
    assert load_lexicon(str(file)).entries == {"重庆": "崇庆", "sql": "sequel"}
    for text in ("{", "[]", '{"a": 1}', '{"": "b"}'):
        file.write_text(text)
        with pytest.raises(LexiconError):
            load_lexicon(str(file))


@pytest.mark.parametrize(
    "entries",
    [
        {"": "x"},
        {"...": "x"},
        {"x": ""},
        {"x": "!"},
        {"x" * 65: "x"},
        {"x": "y" * 257},
        {str(i): "x" for i in range(5001)},
    ],
)
def test_bad_pronunciations_are_refused(entries: dict[str, str]) -> None:
    with pytest.raises(LexiconError) as refused:
        Lexicon(entries)
    assert refused.value.code == "bad_pronunciation"


def test_a_pause_releases_marks_that_wait_for_markup() -> None:
    turn = TurnText()
    assert turn.feed("Hello there!") == []
    assert [piece.text for piece in turn.release()] == ["Hello there!"]
    turn.feed(" It is **so**")
    assert [piece.text for piece in turn.release()] == [" It is "]
    assert [(p.text, p.spoken) for p in turn.finish()] == [("**so**", "so")]


@pytest.mark.parametrize("text", ["Title.\n\n**Bold** it is.", "So *very* far.", "_This_ one."])
def test_a_pause_within_marks_that_open_does_not_make_them_text(text: str) -> None:
    spoken = []
    for pause in (0.0, 0.5):
        turn = TurnText()
        pieces = []
        for character in text:
            pieces += [*turn.feed(character), *turn.release(pause if character in "*_" else 0.0)]
        spoken.append(" ".join(piece.spoken.strip() for piece in [*pieces, *turn.finish()]))
    assert not set("*_") & set("".join(spoken))


def test_flush_takes_open_markup_as_text_and_goes_on() -> None:
    turn = TurnText()
    turn.feed("See [the doc")
    assert [piece.spoken for piece in turn.flush()] == ["See [the doc"]
    assert [piece.spoken for piece in turn.feed("s](http://a.io) now\n```\nx")] == ["s](a.io) now"]
    assert [piece.spoken for piece in turn.flush()] == ["Code omitted."]
    turn.feed("```\nstill code\n")
    assert turn.flush() == []
    turn.feed("```\nDone now")
    assert [piece.spoken for piece in turn.finish()] == ["Done now"]
    with pytest.raises(ValueError, match="finished"):
        turn.feed("more")


def test_markup_after_the_last_word_belongs_to_the_last_piece() -> None:
    turn = TurnText()
    pieces = turn.feed("Well **done.**\n\n---\n<!-- x -->") + turn.finish()
    assert [(p.text, p.spoken) for p in pieces] == [
        ("Well **done.**\n\n---\n<!-- x -->", "Well done.")
    ]
    assert TurnText().finish() == []


def test_the_lead_reaches_the_splitter() -> None:
    turn = TurnText()
    turn.lead = 8.0
    assert turn.lead == 8.0
    assert turn.feed("Hello there. How are you? I am fine. ") == []


def test_surrogate_halves_are_joined_before_markup_is_read() -> None:
    turn = TurnText(SpokenSettings(emoji="name"))
    pieces = turn.feed("Hi \ud83d") + turn.feed("\ude00 you \udc00") + turn.finish()
    assert [piece.spoken for piece in pieces] == ["Hi grinning face you"]
    assert pieces[0].text == "Hi 😀 you \udc00"


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("It is \x1b[31mred\x1b[0m now.", "It is red now."),
        ("\x1b[1;38;5;196mAll of it.\x1b[m", "All of it."),
        ("Gone\x1b[2K\x1b[?25l so.", "Gone so."),
        ("Alone \x1bhere [1] and\x1b[31", "Alone here [1] and"),
    ],
)
def test_control_sequences_of_a_terminal_are_not_said(written: str, said: str) -> None:
    assert speak(written).text == said
    turn = TurnText()
    pieces = [piece for char in written for piece in turn.feed(char)] + turn.finish()
    assert "".join(piece.text for piece in pieces) == written
    assert " ".join(piece.spoken for piece in pieces) == said
