"""What holds of the spoken text of every turn, however its text arrives."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.cutting import TurnPiece, TurnText
from gateway.spoken import Lexicon, SpokenFilter, SpokenSettings, speak


def words(text: str) -> list[str]:
    return text.split()


_PARTS = [
    *words("\\ \\* e.g. 3.14"),
    *words(
        "Hello world. 你好。 Yes! $5 $x^2$ $ $$ \\( \\) \\[ \\] \\frac{a}{b} a*b * ** *** _ __ ~~ `"
    ),
    *words(
        "`` ``` ~~~ # ## - + • > | |--| --- === *** [ ] ( ) [a](b) ![c](d) [1] [^1] [x]: [laugh]"
    ),
    *words(
        "[Stts] <b> </b> <br/> <think> </think> <!-- --> <a@b.c> <| |> & &amp; &#91; ; http https"
    ),
    *words("https://a.io/b?c=1, www.x.org h w hw 【1†s】 👩‍👩‍👧 🇫🇷 1️⃣ ❤️ GPT sql \ud83d \ude00"),
    *[
        " ",
        " ",
        " ",
        " ",
        "\n",
        "\n",
        "\n\n",
        "\r\n",
        "\t",
        "    ",
        "\u2028",
        "- [ ] ",
        "* * *\n",
        "\n# ",
    ],
    *["|---|---|\n", "\n| a | b |\n", "\n```\n", "\n```py\ncode\n```\n", "\n- ", "\n> ", "\n1. "],
]
_TEXT = st.one_of(
    st.lists(st.sampled_from(_PARTS), max_size=60).map("".join),
    st.text(alphabet=st.sampled_from("a1 \n*_`[]()<>!$\\|#-~&:/.。你h"), max_size=120),
    st.text(max_size=150),
)
_SETTINGS = st.builds(
    SpokenSettings,
    code_phrase=st.sampled_from([None, "", "Some code. Look at it."]),
    emoji=st.sampled_from(["drop", "name"]),
    urls=st.sampled_from(["host", "drop", "keep"]),
    control_tags=st.booleans(),
    lexicon=st.just(Lexicon({"GPT": "gee pee tee", "sql": "sequel", "你好": "哈喽"})),
)


def pieces_of(text: str, sizes: list[int], rules: SpokenSettings) -> list[TurnPiece]:
    """Pieces of `text` fed in fragments of the given sizes, repeated."""
    turn = TurnText(rules)
    pieces: list[TurnPiece] = []
    at = step = 0
    while at < len(text):
        size = sizes[step % len(sizes)]
        pieces += turn.feed(text[at : at + size])
        at, step = at + size, step + 1
    return pieces + turn.finish()


def joined(text: str) -> str:
    """`text` with surrogate pairs as code points."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def speakable(text: str) -> bool:
    return any(char.isalnum() for char in text)


@settings(max_examples=150, deadline=None)
@given(_TEXT, st.lists(st.integers(1, 30), min_size=1, max_size=12), _SETTINGS)
@example("a\nhttp://b.c d", [1], SpokenSettings())
@example("ahttp://b.c d", [1], SpokenSettings())
@example("- [ ] todo\n- [x] done", [1], SpokenSettings())
def test_fragmentation_never_shows(text: str, sizes: list[int], rules: SpokenSettings) -> None:
    whole = pieces_of(text, [max(1, len(text))], rules)
    assert pieces_of(text, sizes, rules) == whole
    assert pieces_of(text, [1], rules) == whole


@settings(max_examples=150, deadline=None)
@given(_TEXT, _SETTINGS)
def test_pieces_tile_the_written_text(text: str, rules: SpokenSettings) -> None:
    pieces = pieces_of(text, [max(1, len(text))], rules)
    written = joined(text)
    if pieces:
        assert "".join(piece.text for piece in pieces) == written
        assert pieces[0].start == 0
        assert all(left.end == right.start for left, right in pairwise(pieces))
    for piece in pieces:
        assert piece.text == written[piece.start : piece.end]
        assert speakable(piece.spoken)
        assert piece.spoken == piece.spoken.strip()


@settings(max_examples=150, deadline=None)
@given(_TEXT, _SETTINGS)
def test_spans_cover_what_is_spoken(text: str, rules: SpokenSettings) -> None:
    written = joined(text)
    for said in [speak(written, rules), *(p.said for p in pieces_of(text, [7], rules))]:
        at = 0
        for span in said.spans:
            assert span.spoken_start == at < span.spoken_end
            assert 0 <= span.start < span.end <= len(written)
            if span.exact:
                assert said.text[at : span.spoken_end] == written[span.start : span.end]
            at = span.spoken_end
        assert at == len(said.text)
        assert all(left.end <= right.start for left, right in pairwise(said.spans))


@settings(max_examples=150, deadline=None)
@given(_TEXT, st.booleans())
def test_segments_cover_the_written_text(text: str, flush: bool) -> None:
    written = joined(text)
    spoken = SpokenFilter()
    half = len(written) // 2
    segments = spoken.feed(written[:half])
    segments += spoken.flush() if flush else []
    segments += spoken.feed(written[half:]) + spoken.flush()
    at = 0
    for segment in segments:
        assert segment.start == at
        assert segment.end > at
        assert not segment.exact or segment.text == written[at : segment.end]
        at = segment.end
    assert at == len(written)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from([*words("[ ] laugh Stts uv_break ** <b> `"), "&#91;", "\\"])))
def test_no_control_tag_slips_through(parts: list[str]) -> None:
    said = speak("say " + "".join(parts), SpokenSettings()).text
    assert not any(tag in said for tag in ("[laugh]", "[Stts]", "[uv_break]"))


@settings(max_examples=150, deadline=None)
@given(
    _TEXT,
    st.lists(st.integers(1, 12), min_size=1, max_size=20),
    st.lists(st.sampled_from(["", "", "", "release", "flush"]), min_size=1, max_size=20),
    st.sampled_from([0.0, 0.3, 2.0]),
)
def test_nothing_is_lost_when_the_writer_pauses(
    text: str, sizes: list[int], pauses: list[str], silence_s: float
) -> None:
    turn = TurnText()
    pieces: list[TurnPiece] = []
    at = step = 0
    while at < len(text):
        size = sizes[step % len(sizes)]
        pieces += turn.feed(text[at : at + size])
        match pauses[step % len(pauses)]:
            case "release":
                pieces += turn.release(silence_s)
            case "flush":
                pieces += turn.flush()
        at, step = at + size, step + 1
    pieces += turn.finish()
    assert joined(text).startswith("".join(piece.text for piece in pieces))
    assert all(speakable(piece.spoken) for piece in pieces)
    assert [piece.start for piece in pieces[1:]] == [piece.end for piece in pieces[:-1]]


def test_what_turns_out_to_be_a_control_tag_is_no_piece() -> None:
    turn = TurnText()
    pieces = [*turn.feed("["), *turn.flush(), *turn.feed("laugh]. And on."), *turn.finish()]
    assert [piece.spoken for piece in pieces] == ["And on."]
    assert pieces[0].text == "[laugh]. And on."
