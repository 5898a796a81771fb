"""Text to ChatTTS tokens: what is said, which tags pass, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from engine.api import SpeechError
from engine.checkpoints.random_tokenizer import CONTROL_TOKENS, write_tokenizer
from engine.frontend.chattts import ChatTTSFrontend
from engine.frontend.chattts_tokens import ChatTTSTokens


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder, 21178)
    return folder / "tokenizer.json"


@pytest.fixture(scope="module")
def frontend(file: Path) -> ChatTTSFrontend:
    return ChatTTSFrontend(ChatTTSTokens(file), {"噻": "赛"})


@pytest.fixture(scope="module")
def tokenizer(file: Path) -> Tokenizer:
    return Tokenizer.from_file(str(file))


def said(frontend: ChatTTSFrontend, tokenizer: Tokenizer, text: str) -> str:
    ids = list(frontend.read(text).ids)
    return tokenizer.decode(ids, skip_special_tokens=False).replace(" ", "")


def read_or_refused(frontend: ChatTTSFrontend, text: str) -> tuple[int, ...]:
    """Ids of the text; none when it is refused as text that cannot be said."""
    try:
        return frontend.read(text).ids
    except SpeechError as error:
        if error.code in ("empty_text", "unpronounceable"):
            return ()
        raise


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Is it 3:30, Anna?", "isitthreethirty,anna?"),
        ("It costs $5.20!", "itcostsfivedollarsandtwentycents."),
        ("今天是2024年5月3日。", "今天是二零二四年五月三日。"),
        ("你好吗？", "你好吗？"),
        ("真的是他?!", "真的是他？"),
        ("GPT有3个版本", "gpt有三个版本。"),
    ],
)
def test_digits_and_question_marks_survive(
    frontend: ChatTTSFrontend, tokenizer: Tokenizer, text: str, wanted: str
) -> None:
    assert said(frontend, tokenizer, text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("他说:“好(的)!”；走～吧……", "他说，好，的。走吧。"),
        ("He said: “yes (well)!”; go – now", "hesaid,yes,well.go,now."),
        ("ＡＢＣ，你好！！", "abc，你好。"),
        ("we're, don't; I'll", "weare,dont,iwill."),
        ("naïve café", "naivecafe."),
        ("hello 😀 there", "hellothere."),
        ("一杯咖噻", "一杯咖赛。"),
        ("- - hello", "hello."),
    ],
)
def test_marks_and_characters_are_those_the_model_knows(
    frontend: ChatTTSFrontend, tokenizer: Tokenizer, text: str, wanted: str
) -> None:
    assert said(frontend, tokenizer, text) == wanted


def test_a_character_without_a_token_gives_way_to_one_that_sounds_alike(
    frontend: ChatTTSFrontend, tokenizer: Tokenizer
) -> None:
    assert tokenizer.token_to_id("犇") is None
    assert said(frontend, tokenizer, "犇跑很快") == "奔跑很快。"


def test_inline_tags_pass_and_others_are_never_read_aloud(
    frontend: ChatTTSFrontend, tokenizer: Tokenizer
) -> None:
    assert said(frontend, tokenizer, "好[uv_break]的[laugh]呀[lbreak]") == (
        "好[uv_break]的[laugh]呀[lbreak]"
    )
    everything = "".join(tag for tag in CONTROL_TOKENS if "break]" not in tag and tag != "[laugh]")
    read = frontend.read(f"好的{everything}呀呀")
    assert tokenizer.decode(list(read.ids), skip_special_tokens=False) == "好 的 呀 呀 。"
    assert "[oral_9]" in read.refine
    assert "[speed_0]" not in read.refine


def test_refine_tags_are_asked_for_in_order(frontend: ChatTTSFrontend) -> None:
    assert frontend.read("[oral_2][laugh_0]hello there[break_6]").refine == (
        "[oral_2]",
        "[laugh_0]",
        "[break_6]",
    )


def test_brackets_that_are_no_tag_are_text(frontend: ChatTTSFrontend, tokenizer: Tokenizer) -> None:
    assert said(frontend, tokenizer, "see [note] here now") == "seenoteherenow."


@given(st.lists(st.sampled_from(["[", "]", "St", "ts", "[Stts]", "[spk_emb]", "a"]), max_size=12))
@settings(max_examples=200, deadline=None)
def test_no_text_can_forge_a_control_token(frontend: ChatTTSFrontend, parts: list[str]) -> None:
    forbidden = {frontend.tokens["[Stts]"], frontend.tokens["[spk_emb]"]}
    assert not forbidden & set(read_or_refused(frontend, "".join(parts)))


@given(st.text(max_size=40))
@settings(max_examples=300, deadline=None)
def test_any_text_is_read_with_known_tokens_or_refused(
    frontend: ChatTTSFrontend, text: str
) -> None:
    assert frontend.tokens["[UNK]"] not in read_or_refused(frontend, text)


@pytest.mark.parametrize("text", ["好", "hi", "OK."])
def test_a_very_short_text_gets_a_pause_behind_it(frontend: ChatTTSFrontend, text: str) -> None:
    assert frontend.read(text).ids[-1] == frontend.tokens["[uv_break]"]
    longer = frontend.read(text + ", 一 二 三 四 五")
    assert longer.ids[-1] != frontend.tokens["[uv_break]"]


@pytest.mark.parametrize(
    ("text", "code"),
    [("", "empty_text"), (" \n", "empty_text"), ("……！", "unpronounceable"),
     ("[laugh]", "unpronounceable"), ("Привет", "unpronounceable"), ("😀", "unpronounceable")],
)  # fmt: skip
def test_what_cannot_be_said_is_refused(frontend: ChatTTSFrontend, text: str, code: str) -> None:
    with pytest.raises(SpeechError) as caught:
        frontend.read(text)
    assert caught.value.code == code


def test_the_language_may_be_given(frontend: ChatTTSFrontend) -> None:
    assert frontend.read("2024").language == "en"
    assert frontend.read("2024", "zh").language == "zh"
