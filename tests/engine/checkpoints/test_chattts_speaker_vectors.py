"""Speakers and reference codes as text, and what they become."""

from __future__ import annotations

import lzma
import re
from pathlib import Path

import chattts_reference as reference
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.checkpoints import base16384
from engine.checkpoints.speaker_vectors import (
    SpeakerStatistics,
    decode_codes,
    decode_vector,
    encode_codes,
    encode_vector,
    read_speaker_file,
    unit,
)

HIDDEN = 768


@given(st.binary(max_size=100))
def test_base16384_gives_back_any_bytes(data: bytes) -> None:
    assert base16384.decode(base16384.encode(data)) == data


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("hello", "character 0 ('h', U+0068)"), ("一一一", "cut"), ("㴆", "cut")],
)
def test_base16384_refuses_other_text(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)):
        base16384.decode(text)


def test_texts_of_the_reference_are_read_and_written_alike() -> None:
    texts = reference.texts()
    vector, codes = reference.speaker_vector(HIDDEN), reference.reference_codes()
    assert (decode_vector(texts["speaker"], HIDDEN) == vector).all()
    assert encode_vector(vector) == texts["speaker"]
    assert (decode_codes(texts["codes"], 4, 625) == codes).all()
    assert encode_codes(codes) == texts["codes"]


def test_line_breaks_in_a_copied_text_do_no_harm() -> None:
    text = encode_vector(reference.speaker_vector(HIDDEN))
    wrapped = "\n".join(text[at : at + 40] for at in range(0, len(text), 40)) + "\n"
    assert (decode_vector(wrapped, HIDDEN) == reference.speaker_vector(HIDDEN)).all()


@pytest.mark.parametrize("cut", [2, 60, 400])
def test_a_cut_vector_is_refused(cut: int) -> None:
    with pytest.raises(ValueError, match=r"cut|holds|damaged"):
        decode_vector(encode_vector(reference.speaker_vector(HIDDEN))[:-cut], HIDDEN)


def test_a_vector_of_another_model_is_refused_with_both_sizes() -> None:
    with pytest.raises(ValueError, match="holds 512 numbers, this model's speakers have 768"):
        decode_vector(encode_vector(np.ones(512)), HIDDEN)


def test_text_that_unpacks_to_too_much_is_refused() -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9}]
    bomb = lzma.compress(bytes(50_000_000), format=lzma.FORMAT_RAW, filters=filters)
    with pytest.raises(ValueError, match="this model's speakers have 768"):
        decode_vector(base16384.encode(bomb), HIDDEN)


@pytest.mark.parametrize("values", [np.zeros(HIDDEN), np.full(HIDDEN, np.nan)])
def test_a_vector_that_cannot_be_normalised_is_refused(values: np.ndarray) -> None:
    with pytest.raises(ValueError, match="finite and not all zero"):
        decode_vector(encode_vector(values), HIDDEN)


def test_codes_outside_the_codebook_are_refused() -> None:
    codes = np.full((5, 4), 625, np.int16)
    with pytest.raises(ValueError, match=r"code 625 lies outside 0..624"):
        decode_codes(encode_codes(codes), 4, 625)
    with pytest.raises(ValueError, match="2 codebooks"):
        decode_codes(encode_codes(codes[:, :2]), 4, 625)


def test_unit_is_the_half_precision_normalisation_of_torch() -> None:
    vector = reference.speaker_vector(HIDDEN)
    wanted = torch.nn.functional.normalize(torch.from_numpy(vector), dim=0, eps=1e-12)
    assert (unit(vector) == wanted.float().numpy()).all()


@pytest.mark.parametrize("kind", ["txt", "npy", "pt"])
def test_speaker_files(tmp_path: Path, kind: str) -> None:
    vector, path = reference.speaker_vector(HIDDEN), tmp_path / f"speaker.{kind}"
    if kind == "txt":
        path.write_text(encode_vector(vector) + "\n", encoding="utf-8")
    elif kind == "npy":
        np.save(path, vector)
    else:
        torch.save(torch.from_numpy(vector)[None], path)
    assert (read_speaker_file(path, HIDDEN) == vector).all()


@pytest.mark.parametrize("kind", ["txt", "npy", "pt"])
def test_statistics_hold_spreads_then_means(tmp_path: Path, kind: str) -> None:
    values, path = reference.speaker_statistics(HIDDEN), tmp_path / f"spk_stat.{kind}"
    if kind == "txt":
        path.write_text(base16384.encode(values.tobytes()), encoding="utf-8")
    elif kind == "npy":
        np.save(path, values)
    else:
        torch.save(torch.from_numpy(values), path)
    statistics = SpeakerStatistics.read(path, HIDDEN)
    assert (statistics.std == values[:HIDDEN]).all()
    assert (statistics.mean == values[HIDDEN:]).all()


def test_random_speakers_follow_the_statistics_and_the_seed() -> None:
    std = np.full(HIDDEN, 2, np.float16)
    mean = np.linspace(-5, 5, HIDDEN).astype(np.float16)
    statistics = SpeakerStatistics(std, mean)
    drawn = np.stack([statistics.sample(seed) for seed in range(400)]).astype(np.float32)
    assert np.abs(drawn.mean(0) - mean).max() < 0.5
    assert np.abs(drawn.std(0) - 2).max() < 0.4
    assert (statistics.sample(3) == statistics.sample(3)).all()
    assert (statistics.sample(3) != statistics.sample(4)).any()


def test_statistics_of_another_size_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "spk_stat.npy"
    np.save(path, np.ones(100))
    with pytest.raises(ValueError, match=r"spk_stat.npy holds 100 numbers; .* 1536"):
        SpeakerStatistics.read(path, HIDDEN)
