from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
from fake_engine import sweep
from hypothesis import given
from hypothesis import strategies as st

from engine.api import SAMPLE_RATE, Pcm
from gateway.loudness import HEAR_SAMPLES, Leveller

HERE = Path(__file__).parent / "pieces"


def loudness(audio: Pcm) -> float:
    """Gated RMS in dB: of the 20 ms frames within 20 dB of the loudest."""
    frames = audio[: audio.size // 480 * 480].reshape(-1, 480)
    power = np.mean(frames**2, axis=1)
    return float(10 * np.log10(np.mean(power[power > power.max() / 100])))


def at(level_db: float, seconds: float) -> Pcm:
    """Voice-like sound of this loudness, with a pause in every second."""
    audio = sweep(int(seconds * SAMPLE_RATE))
    audio = audio * (10 ** (level_db / 20) / np.sqrt(np.mean(audio**2)))
    audio[np.arange(audio.size) % SAMPLE_RATE > 0.8 * SAMPLE_RATE] = 0.0
    return audio.astype(np.float32)


def spoken(leveller: Leveller, speaker: str, audio: Pcm) -> Pcm:
    leveller.begin(speaker)
    return leveller.feed(audio)


def test_the_first_speaker_is_left_alone() -> None:
    leveller = Leveller()
    for level in (-30.0, -20.0, -25.0):
        audio = at(level, 2)
        assert spoken(leveller, "ann", audio) is not None
        leveller.begin("ann")
        assert np.array_equal(leveller.feed(audio), audio)


@pytest.mark.parametrize("level", [-14.0, -20.0, -29.0])
def test_another_speaker_comes_to_the_same_loudness_and_stays(level: float) -> None:
    leveller = Leveller()
    spoken(leveller, "ann", at(-22.0, 3))
    spoken(leveller, "bao", at(level, 5))
    spoken(leveller, "ann", at(-22.0, 1))
    again = spoken(leveller, "bao", at(level, 1))
    assert loudness(again) == pytest.approx(-22.0, abs=0.3)


def test_the_gain_moves_slowly_and_only_in_speech() -> None:
    leveller = Leveller()
    spoken(leveller, "ann", at(-22.0, 3))
    audio = at(-16.0, 3)
    out = spoken(leveller, "bao", audio)
    loud = np.abs(audio) > 0.01
    gain = 20 * np.log10(np.abs(out[loud] / audio[loud]))
    steps = np.diff(gain)
    adjacent = np.diff(np.flatnonzero(loud)) == 1
    assert np.abs(steps[adjacent]).max() < 0.001
    assert gain[0] == pytest.approx(0.0, abs=1e-3)
    assert (steps <= 1e-3).all()
    # Nothing changes in the pauses.
    edge = int(0.8 * SAMPLE_RATE)
    before = 20 * np.log10(abs(out[edge - 600] / audio[edge - 600]))
    after = 20 * np.log10(abs(out[SAMPLE_RATE + 700] / audio[SAMPLE_RATE + 700]))
    assert abs(before - after) < 0.25


def test_a_whisper_is_not_blown_up_without_end_and_peaks_stay_whole() -> None:
    leveller = Leveller()
    spoken(leveller, "ann", at(-12.0, 3))
    out = spoken(leveller, "bao", at(-40.0, 8))
    assert loudness(out[-SAMPLE_RATE:]) == pytest.approx(-31.0, abs=0.3)
    leveller = Leveller()
    spoken(leveller, "ann", at(-9.0, 3))
    peaky = at(-20.0, 8)
    peaky[::2400] = 0.9
    out = spoken(leveller, "bao", peaky)
    assert 0.95 < np.abs(out).max() <= 1.0


def test_silence_teaches_nothing() -> None:
    leveller = Leveller()
    silence = np.zeros(SAMPLE_RATE, np.float32)
    assert not spoken(leveller, "ann", silence).any()
    assert not spoken(leveller, "bao", silence).any()
    assert Leveller().feed(silence) is silence


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=12))
def test_chunks_do_not_matter(sizes: list[int]) -> None:
    audio = at(-15.0, 1.5)
    whole, parts = Leveller(), Leveller()
    for leveller in (whole, parts):
        spoken(leveller, "ann", at(-25.0, 1))
        leveller.begin("bao")
    edges = np.cumsum(sizes * (audio.size // sum(sizes) + 1))
    chunks = np.split(audio, edges[edges < audio.size])
    together = np.concatenate([parts.feed(chunk) for chunk in chunks])
    assert np.allclose(together, whole.feed(audio), atol=1e-6)


def test_a_known_speaker_is_at_the_level_from_the_first_sample() -> None:
    leveller = Leveller()
    spoken(leveller, "ann", at(-22.0, 3))
    spoken(leveller, "bao", at(-16.0, 1))
    audio = at(-16.0, 0.2)
    leveller.begin("bao")
    out = leveller.feed(audio)
    assert loudness(out) == pytest.approx(-22.0, abs=0.3)


def test_how_a_new_speaker_begins_sets_the_level_at_once() -> None:
    leveller = Leveller()
    assert not leveller.wants("ann")
    spoken(leveller, "ann", at(-22.0, 3))
    assert not leveller.wants("ann")
    assert leveller.wants("bao")
    audio = at(-16.0, 2)
    leveller.begin("bao", audio[:HEAR_SAMPLES])
    assert loudness(leveller.feed(audio)[:2400]) == pytest.approx(-22.0, abs=0.3)
    assert not leveller.wants("bao")


def test_a_beginning_without_speech_sets_nothing() -> None:
    leveller = Leveller()
    spoken(leveller, "ann", at(-22.0, 3))
    leveller.begin("bao", np.zeros(HEAR_SAMPLES, np.float32))
    audio = at(-16.0, 0.2)
    assert np.array_equal(leveller.feed(audio)[:480], audio[:480])


def test_the_second_of_the_embedded_voices_starts_at_the_level_of_the_first() -> None:
    index = json.loads((HERE / "embedded_voice.json").read_text())
    audio, _ = soundfile.read(HERE / "embedded_voice.flac", dtype="float32")
    pieces = np.split(audio, np.cumsum([piece["samples"] for piece in index])[:-1])
    english = [piece for piece, at_ in zip(pieces, index, strict=True) if at_["text"].isascii()]
    mandarin = [piece for piece in pieces if not any(piece is each for each in english)]
    errors = []
    for first in english[:4]:
        for second in mandarin:
            leveller = Leveller()
            spoken(leveller, "en", first)
            leveller.begin("zh", second[:HEAR_SAMPLES])
            errors.append(loudness(leveller.feed(second)[:SAMPLE_RATE]) - loudness(first))
    # They are 5 to 6 dB apart.
    assert np.mean(np.abs(errors)) < 1.0
    assert np.abs(errors).max() < 3.0


def test_the_embedded_voices_are_level_in_a_mixed_session() -> None:
    """English and Mandarin are two speakers, some 6 dB apart."""
    index = json.loads((HERE / "embedded_voice.json").read_text())
    audio, _ = soundfile.read(HERE / "embedded_voice.flac", dtype="float32")
    pieces = np.split(audio, np.cumsum([piece["samples"] for piece in index])[:-1])
    speakers = ["en" if piece["text"].isascii() else "zh" for piece in index]
    order = [*range(len(pieces))] * 2
    leveller = Leveller()
    raw, level = {"en": [], "zh": []}, {"en": [], "zh": []}
    for number, piece in enumerate(order):
        out = spoken(leveller, speakers[piece], pieces[piece])
        if number >= len(pieces):
            raw[speakers[piece]].append(loudness(pieces[piece]))
            level[speakers[piece]].append(loudness(out))
    assert abs(np.mean(raw["en"]) - np.mean(raw["zh"])) > 4.0
    assert abs(np.mean(level["en"]) - np.mean(level["zh"])) < 1.5
    assert np.std(level["en"] + level["zh"]) < 1.5
