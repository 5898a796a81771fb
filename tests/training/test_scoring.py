"""Error rates, and the recogniser that hears phonemes."""

from __future__ import annotations

import jiwer
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.checkpoints.mini import MiniCheckpoint
from engine.checkpoints.mini_voices import Reference
from training.judges import clicks, is_silent
from training.recogniser import PhonemeRecogniser, edit_distance, segments
from training.scoring import Errors, phone_errors, plain_words, spoken_words


@given(
    st.lists(st.sampled_from("abc"), min_size=1, max_size=12),
    st.lists(st.sampled_from("abc"), max_size=12),
)
def test_edit_distance_agrees_with_jiwer(reference: list[str], heard: list[str]) -> None:
    measured = jiwer.process_words(" ".join(reference), " ".join(heard))
    edits = measured.substitutions + measured.deletions + measured.insertions
    assert edit_distance(reference, heard) == edits


def test_errors_add_up_over_sentences() -> None:
    errors = Errors()
    assert errors.add("abcd", "abxd") == 0.25
    assert errors.add("ab", "") == 1.0
    assert errors.percent == pytest.approx(50.0)
    assert Errors().percent == 0.0


def test_words() -> None:
    assert plain_words("It's twenty-two, OK?") == ["it's", "twenty", "two", "ok"]
    assert spoken_words("tˈu kˈæts—ænd ˌIs.") == ["tu", "kæts", "ænd", "Is"]


def test_phone_errors_count_tones_apart() -> None:
    errors, toneless = Errors(), Errors()
    rate = phone_errors("ma→ ma↓, ni↗.", "ma→ma↗ni↗", errors, toneless)
    assert rate == pytest.approx(1 / 9)
    assert (errors.edits, errors.length) == (1, 9)
    assert (toneless.edits, toneless.length) == (0, 6)


def test_seams_that_jump_are_clicks() -> None:
    time = np.arange(2400, dtype=np.float32) / 24000
    wave = np.sin(2 * np.pi * 200 * time).astype(np.float32)
    assert clicks([wave[:1000], wave[1000:]]) == 0
    assert clicks([wave[:1000], wave[1000:] + 0.5]) == 1
    assert clicks([wave]) == 0
    assert clicks([]) == 0


def test_silence() -> None:
    assert is_silent(np.zeros(24000, np.float32))
    assert is_silent(np.ones(100, np.float32))
    assert not is_silent(np.full(24000, 0.5, np.float32))


@pytest.mark.parametrize(("voice", "language"), [("jf_gongitsune", "zh"), ("jm_kumo", "zh")])
def test_the_recogniser_hears_what_a_reference_says(voice: str, language: str) -> None:
    checkpoint = MiniCheckpoint.embedded()
    reference: Reference = checkpoint.reference(voice, language)
    heard = segments(PhonemeRecogniser.load().heard(checkpoint.codec().decode(reference.codes)))
    said = segments("xautɤwoxənlɤipaŋninwomənɕjɛnʦaiʨjoukʰaiʂɨpa")
    other = segments("ʨintʰjɛntjɛntʰjɛnʨʰixənxauwomənʨʰykʊŋɥɛnsanpu")
    assert edit_distance(said, heard) / len(said) < 0.35
    assert edit_distance(other, heard) / len(other) > 0.7
