"""Text of a piece to phonemes, in English, Mandarin and both."""

# A table reads best with one case a line.
# ruff: noqa: E501

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import engine.voices
from engine.api import SpeechError
from engine.frontend.phonemes import TERMINALS, Alphabet, has_sound
from engine.frontend.text import TextFrontend

_ALPHABET = Alphabet.load(Path(engine.voices.__file__).parent / "mini" / "phonemes.json")
_FRONTEND = TextFrontend(_ALPHABET)

# Read by the front ends the voice was trained with: hibari 0.2.1, and misaki 0.9.4 for Mandarin.
TRAINED_ENGLISH = [
    ("The lamp by the door was left on all night.", "ðə lˈæmp bI ðə dˈɔɹ wʌz lˈɛft ˌɔn ˈɔl nˈIt."),
    ("Don't forget your umbrella, it's raining again!", "dˈOnt fəɹɡˈɛt jʊɹ ˌʌmbɹˈɛlə, ɪts ɹˈAnɪŋ əɡˈɛn!"),
    ("Who told you that? I never said it.", "hˌu tˈOld ju ðˈæt? ˌI nˈɛvəɹ sˈɛd ɪt."),
    ("The invoice comes to $48.75.", "ði ˈɪnvˌYs kˈʌmz tə fˈɔɹTi ˈAt dˈɑləɹz ænd sˈɛvənti fˈIv sˈɛnts."),
    ("Their flight lands at 10:05.", "ðˌɛɹ flˈIt lˈændz æt tˈɛn ˈO fˈIv."),
    ("She moved here on April 12, 1987.", "ʃˌi mˈuvd hˈɪɹ ˌɔn ˈApɹəl twˈɛlfθ, nˌIntˈin ˈATi sˈɛvən."),
    ("A quiet street, a red bicycle; nothing else.", "ɐ kwˈIət stɹˈit, ɐ ɹˈɛd bˈIsəkəl; nˈʌθɪŋ ˈɛls."),
]  # fmt: skip
TRAINED_MANDARIN = [
    ("门口的灯亮了一整夜。", "mə↗nkʰou↓ tɤ tə→ŋlja↘ŋlɤ i→ꭧə↓ŋje↘."),
    ("别忘了带伞，又下雨了！", "pje↗wa↘ŋlɤ tai↘sa↓n, jou↘ ɕja↘y↓ lɤ!"),
    ("谁告诉你的？我从来没说过。", "ʂwei↗ kau↘su↘ ni↓ tɤ? wo↓ ʦʰʊ↗ŋlai↗ mei↗ʂwo→ kwo↘."),
    ("一共四十八元。", "i→kʊ↘ŋ sɨ↘ʂɨ↗pa→ ɥɛ↗n."),
    ("他1987年4月12日搬到这里。", "tʰa→ i→ʨjou↓pa→ʨʰi→njɛ↗n sɨ↘ɥe↘ ʂɨ↗ɚ↘ɻɨ↘ pa→n tau↘ ꭧɤ↘li↓."),
    ("银行行长在重庆重新开张了一家音乐学院。", "i↗nxa↗ŋxa↗ŋꭧa↓ŋ ʦai↘ ꭧʰʊ↗ŋʨʰi↘ŋ ꭧʰʊ↗ŋɕi→n kʰai→ꭧa→ŋ lɤ i→ʨja→ i→nɥe↘ɕɥe↗ɥɛ↘n."),
    ("绿色的旅行箱、女儿的衣服；还有耳机。", "ly↘sɤ↘ tɤ ly↓ɕi↗ŋɕja→ŋ, ny↓ɚ↗ tɤ i→fu↗; xai↗jou↓ ɚ↓ʨi→."),
]  # fmt: skip
MIXED = [
    ("我用Python写代码。", "zh", "我用 Python 写代码。", "wo↓jʊ↘ŋ pˈIθˌɑn ɕje↓ tai↘ma↓."),
    ("GPT-4和Claude哪个好？", "zh", "GPT 四和 Claude 哪个好？", "ʤˌipˌitˈi sɨ↘ xɤ↗ klˈɔd na↓kɤ xau↓?"),
    ("OK，没问题！", "zh", "OK， 没问题！", "ˌOkˈA, mei↗ wə↘ntʰi↗!"),
    ("他得了A+。", "zh", "他得了 A 加。", "tʰa→ tɤ↗ lɤ ˈA ʨja→."),
    ("我有2个apple。", "zh", "我有两个 apple。", "wo↓ jou↓ lja↓ŋkɤ↘ ˈæpᵊl."),
    ("邮箱是jo@example.com。", "zh", "邮箱是 J.O 艾特 example 点 com。", "jou↗ɕja→ŋ ʂɨ↘ ʤˌAˈO ai↘tʰɤ↘ ɪɡzˈæmpəl tjɛ↓n kˈɑm."),
    ("I paid 50元 for it.", "en", "I paid 五十元 for it.", "ˌI pˈAd u↓ʂɨ↗ɥɛ↗n fɔɹ ɪt."),
    ("The word 学习 means to study.", "en", "The word 学习 means to study.", "ðə wˈɜɹd ɕɥe↗ɕi↗ mˈinz tə stˈʌdi."),
    ("Meet me at 5 p.m. Bring 谢谢 cards.", "en", "Meet me at five P.M. Bring 谢谢 cards.", "mˈit mˌi æt fˈIv pˌiˈɛm. bɹˈɪŋ ɕje↘ɕje↘ kˈɑɹdz."),
]  # fmt: skip


@pytest.mark.parametrize(("text", "phonemes"), TRAINED_ENGLISH)
def test_english_reads_as_the_voice_was_trained(text: str, phonemes: str) -> None:
    reading = _FRONTEND.read(text)
    assert (reading.language, reading.phonemes) == ("en", phonemes)


@pytest.mark.parametrize(("text", "phonemes"), TRAINED_MANDARIN)
def test_mandarin_reads_as_the_voice_was_trained(text: str, phonemes: str) -> None:
    reading = _FRONTEND.read(text)
    assert (reading.language, reading.phonemes) == ("zh", phonemes)


@pytest.mark.parametrize(("text", "language", "words", "phonemes"), MIXED)
def test_both_languages_in_one_sentence(
    text: str, language: str, words: str, phonemes: str
) -> None:
    reading = _FRONTEND.read(text)
    assert (reading.language, reading.words, reading.phonemes) == (language, words, phonemes)


def test_the_language_asked_for_decides_how_numbers_are_read() -> None:
    assert _FRONTEND.read("42", "zh").words == "四十二"
    assert _FRONTEND.read("42", "en").words == "forty two"


@pytest.mark.parametrize(
    ("text", "ending"),
    [("hello", "."), ("hello,", ","), ("你好", "."), ("really?", "?"), ("他说：“好。”", ". ”")],
)
def test_a_piece_always_ends_in_a_mark(text: str, ending: str) -> None:
    assert _FRONTEND.read(text).phonemes.endswith(ending)


@pytest.mark.parametrize(
    ("text", "phonemes"),
    [
        ("xkcd npm vllm", "ˌɛkskˌAsˌidˈi ˌɛnpˌiˈɛm vˌiˌɛlˌɛlˈɛm."),
        ("hmm", "hmm."),
        ("São Paulo", "sˈW pˈɔlO."),
        ("plan A.", "plˈæn ˈA."),
    ],
)
def test_words_the_lexicon_reads_wrongly(text: str, phonemes: str) -> None:
    assert _FRONTEND.read(text).phonemes == phonemes


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "empty_text"), (" \n\t ", "empty_text"), ("!!! ...", "unpronounceable"),
        ("😀👍🏽", "unpronounceable"), ("こんにちは", "unpronounceable"), ("،؛", "unpronounceable"),
        ("\u200b\u200d", "unpronounceable"), ("。。。", "unpronounceable"),
    ],
)  # fmt: skip
def test_text_without_words_is_refused(text: str, code: str) -> None:
    with pytest.raises(SpeechError) as refused:
        _FRONTEND.read(text)
    assert refused.value.code == code


def _reads_or_refuses(text: str) -> None:
    refusals: set[str] = set()
    for language in ("auto", "en", "zh"):
        try:
            reading = _FRONTEND.read(text, language)  # type: ignore[arg-type]
        except SpeechError as error:
            refusals.add(error.code)
            continue
        assert has_sound(reading.phonemes)
        assert reading.phonemes == _ALPHABET.clean(reading.phonemes)
        assert len(_ALPHABET.encode(reading.phonemes)) == len(reading.phonemes)
        assert any(mark in reading.phonemes[-3:] for mark in TERMINALS)
        assert not any(c.isdigit() for c in reading.words)
    assert refusals <= {"empty_text", "unpronounceable"}


@settings(max_examples=400, deadline=None)
@given(st.text(max_size=60))
def test_any_unicode_is_read_or_refused(text: str) -> None:
    _reads_or_refuses(text)


@settings(max_examples=600, deadline=None)
@given(st.text("0123456789.,:/-+%$€￥~#@°'\" xkmabpAPM年月日点元个号第版v好", max_size=24))
def test_any_mix_of_numbers_signs_and_units_is_read_or_refused(text: str) -> None:
    _reads_or_refuses(text)
