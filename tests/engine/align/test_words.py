"""Each word of a text finds the phonemes that say it."""

from __future__ import annotations

import pytest

from engine.align.words import spoken_words, without_marks
from engine.frontend.phonemes import Alphabet
from engine.frontend.text import TextFrontend


@pytest.fixture(scope="module")
def frontend() -> TextFrontend:
    return TextFrontend(Alphabet.embedded())


def said(frontend: TextFrontend, text: str) -> dict[str, str]:
    reading = frontend.read(text)
    found = spoken_words(
        text, reading.phonemes, lambda word: frontend.sounds(word, reading.language)
    )
    ends = [word.last for word in found]
    assert ends == sorted(ends)
    return {text[w.start : w.end]: reading.phonemes[w.first : w.last] for w in found}


def test_english_words(frontend: TextFrontend) -> None:
    found = said(frontend, "Hello there, it costs $3.50!")
    assert list(found) == ["Hello", "there", "it", "costs", "$3.50"]
    assert without_marks(found["there"]) == "ðˈɛɹ"
    assert found["$3.50"].startswith("θɹˈi")


def test_mandarin_has_a_word_a_character(frontend: TextFrontend) -> None:
    found = said(frontend, "今天很好，世界。")
    assert "".join(found) == "今天很好世界"
    assert found["好"] == "xau↓"
    assert found["界"] == "ʨje↘"


def test_a_reading_that_depends_on_its_neighbours(frontend: TextFrontend) -> None:
    # 行 by itself is xíng, in 银行 háng; 2024 is said digit by digit before 年.
    found = said(frontend, "2024年银行很多。")
    assert found["行"] == "xa↗ŋ"
    assert found["年"] == "njɛ↗n"
    assert found["2024"].count("ə") + found["2024"].count("ɚ") >= 2


def test_both_languages_in_one_sentence(frontend: TextFrontend) -> None:
    found = said(frontend, "我用 Python 写代码。")
    assert list(found) == ["我", "用", "Python", "写", "代", "码"]
    assert found["Python"].startswith("pˈ")


def test_what_is_not_said_is_no_word(frontend: TextFrontend) -> None:
    assert list(said(frontend, "Well — “yes” … 😀 (no)!")) == ["Well", "yes", "no"]
