"""The splitter on a table of hand-checked texts, and its calls."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway.cutting import CLAUSE_SILENCE_S, WORD_SILENCE_S, Lengths, Piece, Splitter

_CASES = Path(__file__).with_name("cutting_cases.txt")
_ESCAPE = re.compile(r"\\(u[0-9a-f]{4}|.)")


def unescaped(text: str) -> str:
    plain = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}
    return _ESCAPE.sub(lambda m: plain.get(m[1]) or chr(int(m[1][1:], 16)), text)


def cases() -> list[tuple[str, float | None]]:
    found: list[tuple[str, float | None]] = []
    for line in _CASES.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith(("#: ", "## ")):
            continue
        lead, _, case = line.rpartition(" | ") if line.startswith("lead ") else ("", "", line)
        found.append((unescaped(case), float(lead.removeprefix("lead ")) if lead else None))
    return found


@pytest.mark.parametrize(("case", "lead"), cases())
def test_cases(case: str, lead: float | None) -> None:
    pieces = case.split("¦")
    splitter = Splitter()
    splitter.lead = lead
    given = splitter.feed("".join(pieces)) + splitter.finish()
    assert [piece.text for piece in given] == pieces
    splitter = Splitter()
    splitter.lead = lead
    one_by_one = [piece for char in "".join(pieces) for piece in splitter.feed(char)]
    assert one_by_one + splitter.finish() == given


def test_the_table_is_as_long_as_it_should_be() -> None:
    assert len(set(cases())) >= 250


def texts(pieces: list[Piece]) -> list[str]:
    return [piece.text for piece in pieces]


# Text so far, and what is given after no silence, after that of a clause, after that of a word.
_PAUSES = [
    ("你好。", "你好。", "你好。", "你好。"),
    ("你好！”", "你好！”", "你好！”", "你好！”"),
    ("他说：“你好。", "", "他说：“你好。", "他说：“你好。"),
    ("他说：“你好。”", "他说：“你好。”", "他说：“你好。”", "他说：“你好。”"),
    ("Hello there.", "", "Hello there.", "Hello there."),
    ("Hello there. ", "Hello there. ", "Hello there. ", "Hello there. "),
    ("Hello there?", "", "Hello there?", "Hello there?"),
    ("Hello there!\n", "Hello there!\n", "Hello there!\n", "Hello there!\n"),
    ("Hello there\n\n", "Hello there\n\n", "Hello there\n\n", "Hello there\n\n"),
    ('He said "go."', 'He said "go."', 'He said "go."', 'He said "go."'),
    ('He said "go. ', "", 'He said "go. ', 'He said "go. '),
    ("I went to the shop, ", "", "I went to the shop, ", "I went to the shop, "),
    ("I went to the shop, and", "", "I went to the shop, ", "I went to the shop, "),
    ("I went to the shop, and th", "", "I went to the shop, ", "I went to the shop, and "),
    ("Well, ", "", "", "Well, "),
    ("I have 3", "", "", "I have "),
    ("It costs 3.", "", "", "It costs "),
    ("It costs 3. ", "It costs 3. ", "It costs 3. ", "It costs 3. "),
    ("I have 1,", "", "", "I have "),
    ("It is 9:", "", "", "It is "),
    ("It costs $", "", "", "It costs "),
    ("It costs $ 5 ", "", "", "It costs "),
    ("He met Dr. ", "", "", "He met "),
    ("He met Dr.", "", "", "He met "),
    ("He met J. R. ", "", "", "He met "),
    ("It is 5 p.m. ", "", "", "It is "),
    ("It is e.g. ", "", "", "It is "),
    ("He walked 5 ", "", "", "He walked "),
    ("Hello my name is ", "", "", "Hello my name is "),
    ("Hello my nam", "", "", "Hello my "),
    ("Please see https://a.com/x?", "", "", "Please see "),
    ("Go to a.io/b?", "", "", "Go to "),
    ("Go to <b", "", "", "Go to "),
    ("Go to <b a='x y. z, ", "", "", "Go to "),
    ("Ha ha ha [uv_br", "", "", "Ha ha ha "),
    ("Call now `a b. c, d ", "", "", "Call now "),
    ("And then... ", "", "And then... ", "And then... "),
    ("It is well-", "", "", "It is "),
    ("今天我想去北", "", "", ""),
    ("我去了商店然后去北", "", "", "我去了商店"),
    ("天气很好，我想去北", "", "天气很好，", "天气很好，"),
    ("你好 👩", "", "", "你好 "),
    ("Great job! 👩", "", "", "Great job! "),
    ('He said "go."\n\n', 'He said "go."\n\n', 'He said "go."\n\n', 'He said "go."\n\n'),
    ("He came (late) ", "", "", "He came (late) "),
    ('He said "... ', "", 'He said "... ', 'He said "... '),
    ("他说：“（你好。”", "他说：“（你好。”", "他说：“（你好。”", "他说：“（你好。”"),
    ("It cost me, $", "", "", "It cost me, "),
    ("Take $x, y$.", "", "Take $x, y$.", "Take $x, y$."),
    ("Ok", "", "", ""),
    ("...", "", "", ""),
    ("", "", "", ""),
    ("verylongword", "", "", ""),
]


@pytest.mark.parametrize(("text", "at_once", "clause", "word"), _PAUSES)
def test_what_a_pause_releases(text: str, at_once: str, clause: str, word: str) -> None:
    for silence_s, wanted in ((0.0, at_once), (CLAUSE_SILENCE_S, clause), (WORD_SILENCE_S, word)):
        splitter = Splitter()
        assert splitter.feed(text) == []
        assert "".join(texts(splitter.release(silence_s))) == wanted


def test_the_turn_goes_on_after_a_release() -> None:
    splitter = Splitter()
    splitter.feed("He said “go away. Now")
    assert texts(splitter.release()) == ["He said “go away. "]
    assert texts(splitter.feed("here else.” Then he left. She")) == [
        "Nowhere else.” ",
        "Then he left. ",
    ]
    assert texts(splitter.finish()) == ["She"]


def test_a_release_does_not_slow_what_comes_next() -> None:
    splitter = Splitter()
    splitter.feed("Ok. ")
    assert splitter.release(0.0) == [Piece("Ok. ", 0, 4, "sentence")]
    splitter.feed("He met Dr. ")
    assert splitter.release(0.0) == []
    splitter.feed("X. ")
    assert texts(splitter.feed("Then ")) == ["He met Dr. X. "]


def test_flush_gives_all_and_positions_go_on() -> None:
    splitter = Splitter()
    assert texts(splitter.feed("One more t")) == []
    assert splitter.flush() == [Piece("One more t", 0, 10, "none")]
    splitter.feed("... ")
    assert splitter.flush() == []
    assert splitter.feed("ime. Again") == [Piece("... ime. ", 10, 19, "sentence")]
    assert splitter.finish() == [Piece("Again", 19, 24, "none")]


def test_a_turn_without_a_word_has_no_piece() -> None:
    splitter = Splitter()
    assert splitter.feed("…… “” ——\n") + splitter.release() + splitter.finish() == []


def test_nothing_is_taken_after_the_end() -> None:
    splitter = Splitter()
    splitter.finish()
    for call in (lambda: splitter.feed("more"), splitter.finish, splitter.flush):
        with pytest.raises(ValueError, match="finished"):
            call()


def test_surrogate_halves_are_joined() -> None:
    splitter = Splitter()
    pieces = splitter.feed("Good \ud83d") + splitter.feed("\ude00. Bye") + splitter.feed("\ud83d")
    pieces += splitter.finish()
    assert pieces == [
        Piece("Good 😀. ", 0, 8, "sentence"),
        Piece("Bye\ud83d", 8, 12, "none"),
    ]


def test_pauses_follow_the_marks() -> None:
    splitter = Splitter()
    text = "After the long walk in the hills, they sat down. They ate.\n\nNext" + " word" * 60
    pauses = [piece.pause for piece in splitter.feed(text) + splitter.finish()]
    assert pauses == ["clause", "sentence", "paragraph", "none", "none"]


def test_an_unclosed_quote_does_not_hold_text_for_ever() -> None:
    text = "He said “I came home late. " + "We had some bread there. " * 20
    pieces = texts(Splitter().feed(text))
    assert len(pieces) > 15
    assert pieces[0] == "He said “I came home late. "
    assert max(map(len, pieces)) < 60


def test_a_long_bracket_is_cut_inside_rather_than_in_a_word() -> None:
    text = "(" + "so the story goes on and on, " * 12 + "he said) and left."
    pieces = texts(Splitter().feed(text) + Splitter().finish())
    assert pieces
    assert all(piece.endswith(", ") for piece in pieces)


def test_a_forced_cut_comes_before_an_open_bracket() -> None:
    splitter = Splitter(Lengths(60, 12.0))
    text = "The old house on the high hill (which nobody had seen open for so many years) fell."
    assert texts(splitter.feed(text) + splitter.finish())[0] == "The old house on the high hill "


# Text without marks, and where the cap of 40 code points cuts it.
_UNMARKED = [
    "we walked all the way down to the river ¦and then we swam across it to the other ¦side of it",
    "it was so very hot that he drank ¦about 250 ml of water in one go there",
    "they came to see the famous old ¦Dr. Smith of London",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa¦aaaaaaaaaa",
    "see it at https://example.com/abcdefghij¦klmnopqrstuvw",
    "他们一起去了很远的地方看望了住在山里的¦老朋友们",
    "私は昨日友達と一緒に新しい映画を見に¦行きました",
    "我们今天用了新的iPhone¦去公园里面给大家拍照片",
    "ёлка стоит в лесу и никто не знает где ¦она",
]


@pytest.mark.parametrize("case", _UNMARKED)
def test_forced_cuts(case: str) -> None:
    pieces = case.split("¦")
    splitter = Splitter(Lengths(40, 6.0))
    assert texts(splitter.feed("".join(pieces)) + splitter.finish()) == pieces


def test_a_grapheme_longer_than_the_cap_is_cut() -> None:
    pieces = texts(Splitter().feed("e" + "\u0301" * 500 + " word") + Splitter().finish())
    assert pieces == [] or len(pieces[0]) <= 200


@pytest.mark.parametrize(("chars", "seconds"), [(19, 12.0), (200, 1.9)])
def test_bounds_too_small_to_speak_in_are_refused(chars: int, seconds: float) -> None:
    with pytest.raises(ValueError, match="at least 20 code points"):
        Lengths(chars, seconds)
