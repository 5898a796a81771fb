"""Pinyin syllables in the phoneme alphabet."""

from __future__ import annotations

from pathlib import Path

import pytest
from pypinyin.contrib.tone_convert import to_tone3
from pypinyin.pinyin_dict import pinyin_dict

import engine.voices
from engine.frontend.phonemes import Alphabet
from engine.frontend.pinyin import syllable_phonemes


@pytest.mark.parametrize(
    ("syllable", "phonemes"),
    [
        ("ma1", "ma→"), ("ma2", "ma↗"), ("ma3", "ma↓"), ("ma4", "ma↘"), ("ma5", "ma"),
        ("zhi1", "ꭧɨ→"), ("zi4", "ʦɨ↘"), ("ri4", "ɻɨ↘"), ("xi1", "ɕi→"), ("qi2", "ʨʰi↗"),
        ("lv4", "ly↘"), ("lü4", "ly↘"), ("ju2", "ʨy↗"), ("yu3", "y↓"), ("yuan2", "ɥɛ↗n"),
        ("wei4", "wei↘"), ("shui3", "ʂwei↓"), ("liu2", "ljou↗"), ("dun4", "twə↘n"),
        ("bo1", "pwo→"), ("er2", "ɚ↗"), ("ng2", "ŋ↗"), ("xiong2", "ɕjʊ↗ŋ"), ("yi1", "i→"),
    ],
)  # fmt: skip
def test_syllable(syllable: str, phonemes: str) -> None:
    assert syllable_phonemes(syllable) == phonemes


@pytest.mark.parametrize("text", ["", "5", "q", "hello", "xyz4", "好"])
def test_what_is_no_syllable_has_no_phonemes(text: str) -> None:
    assert syllable_phonemes(text) == ""


def test_every_syllable_of_the_dictionary_is_written_in_the_alphabet() -> None:
    alphabet = Alphabet.load(Path(engine.voices.__file__).parent / "mini" / "phonemes.json")
    syllables = {
        to_tone3(reading, neutral_tone_with_five=True)
        for readings in pinyin_dict.values()
        for reading in readings.split(",")
    }
    unwritten = [s for s in syllables if not (p := syllable_phonemes(s)) or alphabet.clean(p) != p]
    assert unwritten == []
