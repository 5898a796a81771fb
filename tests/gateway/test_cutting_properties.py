"""What holds for every text, however it arrives."""

from __future__ import annotations

import re

import regex
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.characters import units
from gateway.cutting import Lengths, Piece, Splitter


def words(text: str) -> list[str]:
    return text.split()


_WORDS = [
    *words("a I he The word Dr. e.g. U.S. a.m. etc. No. J. R. 3.14 1,000 $3.5 9:30 v1.2.3"),
    *words("https://a.io/b?c=1,2 me@a.io it's the 5 kg <b> </think> [laugh] snake_case don't"),
    *words("你好 我们 的 了 今天天气 13.81万亿 苹果 はい カタカナ สวัสดี नमस्ते مرحبا مرحبًا 안녕"),
    *["👩‍👩‍👧", "🇫🇷", "😀", "1️⃣", "e\u0301", "\ud83d", "\ude00", "\u200d", "ำ", "ﾞ", "\u0301", "ℹ"],
]
_MARKS = [
    *words(". ! ? , ; : … ... - — – ' \" ( ) [ ] { } < > ` | $ # * _ ~ % & / @ + ="),
    *words("。 ！ ？ ， 、 ； ： …… 。。。 “ ” ‘ ’ 「 」 『 』 （ ） 【 】 《 》"),
    *words("～ । ॥ ؟ ، « » „ ・"),
    *[" ", " ", " ", " ", "  ", "\n", "\n\n", "\r\n", "\t", "\u3000", "\u00a0", "\u2028", "```"],
]
_TEXT = st.one_of(
    st.lists(st.sampled_from(_WORDS + _MARKS * 2), max_size=120).map("".join),
    st.lists(st.sampled_from(_WORDS + [" "] * 30), max_size=200).map("".join),
    st.lists(st.sampled_from([*"aA1.,!? \n\"'(“”)。，我"]), max_size=400).map("".join),
    st.text(max_size=300),
    st.text(alphabet=st.sampled_from("我们的了在是a1 。，“”"), max_size=400),
)
_LENGTHS = st.sampled_from([Lengths(), Lengths(40, 4.0), Lengths(20, 2.0), Lengths(60, 12.0)])
_EDGES = re.compile(r"^[\W_]+|[\W_]+$")
_LONG_EDGE = re.compile(r"[\W_]{6,}|[\W_]+$")


def split(text: str, sizes: list[int], lengths: Lengths, lead: float | None) -> list[Piece]:
    """Pieces of `text` fed in fragments of the given sizes, repeated."""
    splitter = Splitter(lengths)
    splitter.lead = lead
    pieces: list[Piece] = []
    at = turn = 0
    while at < len(text):
        size = sizes[turn % len(sizes)]
        pieces += splitter.feed(text[at : at + size])
        at, turn = at + size, turn + 1
    return pieces + splitter.finish()


def speakable(text: str) -> bool:
    return any(char.isalnum() for char in text)


def joined(text: str) -> str:
    """`text` with surrogate pairs as code points."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


@settings(max_examples=200, deadline=None)
@given(
    _TEXT,
    st.lists(st.integers(1, 60), min_size=1, max_size=20),
    _LENGTHS,
    st.sampled_from([None, 0.0, 1.5, 6.0]),
)
@example("Hello. " * 40, [4], Lengths(), None)
@example("a" + " " * 300 + "b", [7], Lengths(), None)
@example("." * 300 + "b. c" + "." * 300 + "d", [7], Lengths(), None)
def test_fragmentation_never_shows(
    text: str, sizes: list[int], lengths: Lengths, lead: float | None
) -> None:
    whole = split(text, [max(1, len(text))], lengths, lead)
    assert split(text, sizes, lengths, lead) == whole
    assert split(text, [1], lengths, lead) == whole


@settings(max_examples=200, deadline=None)
@given(_TEXT, _LENGTHS)
@example("\ud83d\ude00 Hi there. \ud83d", Lengths())
def test_pieces_tile_the_text(text: str, lengths: Lengths) -> None:
    pieces = split(text, [max(1, len(text))], lengths, None)
    written = joined(text)
    if not speakable(written):
        assert pieces == []
        return
    assert "".join(piece.text for piece in pieces) == written
    at = 0
    for piece in pieces:
        assert (piece.start, piece.end) == (at, at + len(piece.text))
        assert speakable(piece.text)
        at = piece.end


@settings(max_examples=200, deadline=None)
@given(_TEXT, _LENGTHS, st.sampled_from([None, 0.0, 9.0]))
@example("a" * 1000, Lengths(), None)
@example("我" * 1000, Lengths(), None)
@example("“" + "他说了很多话，" * 60, Lengths(), 9.0)
@example("3.14159" * 200, Lengths(), None)
def test_the_cap_holds(text: str, lengths: Lengths, lead: float | None) -> None:
    for piece in split(text, [max(1, len(text))], lengths, lead):
        said = _EDGES.sub("", piece.text)
        assert len(said) <= lengths.max_chars
        assert units(said) <= lengths.cap_units(first=piece.start == 0)
        if not _LONG_EDGE.search(text):
            assert len(piece.text) <= lengths.max_chars


@settings(max_examples=200, deadline=None)
@given(_TEXT)
@example("Hi 👩‍👩‍👧! 👩‍👩‍👧 Hello there. 🇫🇷🇩🇪 e\u0301" * 20)
@example("e\u0301" * 300)
def test_graphemes_stay_whole(text: str) -> None:
    written = joined(text)
    inner = {match.end() for match in regex.finditer(r"\X", written)}
    for piece in split(text, [max(1, len(text))], Lengths(), None):
        if _longest_grapheme(piece.text) < 60:
            assert piece.end in inner or written[piece.end - 1].isspace()


def _longest_grapheme(text: str) -> int:
    return max(len(cluster) for cluster in regex.findall(r"\X", text))


@settings(max_examples=200, deadline=None)
@given(
    _TEXT,
    st.lists(st.integers(1, 12), min_size=1, max_size=20),
    st.lists(st.sampled_from(["", "", "", "release", "flush"]), min_size=1, max_size=20),
    st.sampled_from([0.0, 0.3, 2.0]),
)
def test_nothing_is_lost_when_the_writer_pauses(
    text: str, sizes: list[int], pauses: list[str], silence_s: float
) -> None:
    splitter = Splitter()
    pieces: list[Piece] = []
    at = turn = 0
    while at < len(text):
        size = sizes[turn % len(sizes)]
        pieces += splitter.feed(text[at : at + size])
        match pauses[turn % len(pauses)]:
            case "release":
                pieces += splitter.release(silence_s)
            case "flush":
                pieces += splitter.flush()
        at, turn = at + size, turn + 1
    pieces += splitter.finish()
    written = joined(text)
    given_text = "".join(piece.text for piece in pieces)
    assert written.startswith(given_text)
    assert not speakable(written[len(given_text) :])
    assert all(speakable(piece.text) for piece in pieces)
    assert [piece.start for piece in pieces[1:]] == [piece.end for piece in pieces[:-1]]
