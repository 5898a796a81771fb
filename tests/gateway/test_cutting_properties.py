"""What holds for every text, however it arrives."""

from __future__ import annotations

import regex
from hypothesis import example, given, settings
from hypothesis import strategies as st

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
_SPEAKABLE = regex.compile(r"[\p{L}\p{N}]")


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


def joined(text: str) -> str:
    """`text` with surrogate pairs as code points."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


@settings(max_examples=400, deadline=None)
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


@settings(max_examples=400, deadline=None)
@given(_TEXT, _LENGTHS)
@example("\ud83d\ude00 Hi there. \ud83d", Lengths())
def test_pieces_tile_the_text(text: str, lengths: Lengths) -> None:
    pieces = split(text, [max(1, len(text))], lengths, None)
    written = joined(text)
    if not _SPEAKABLE.search(written):
        assert pieces == []
        return
    assert "".join(piece.text for piece in pieces) == written
    at = 0
    for piece in pieces:
        assert (piece.start, piece.end) == (at, at + len(piece.text))
        assert _SPEAKABLE.search(piece.text)
        at = piece.end
