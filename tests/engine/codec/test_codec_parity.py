"""The released shapes against the reference package (golden/, made by make_golden.py)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench.codec_random import random_codes, random_hidden, random_pcm, random_state
from engine.codec.config import CodecConfig, released_config
from engine.codec.model import Codec
from engine.codec.names import expected_tensors

GOLDEN = Path(__file__).parent / "golden"
CASES = ["small_trained", "small_current", "full_trained", "full_current"]


def released_codec(config: CodecConfig, seed: int) -> Codec:
    states = [
        {
            name: torch.from_numpy(weights)
            for name, weights in random_state(expected_tensors(config, part), seed).items()
        }
        for part in ("dvae", "decoder", "vocos")
    ]
    return Codec.released(*states, config=config)


class Golden:
    def __init__(self, name: str) -> None:
        self.arrays: dict[str, Any] = dict(np.load(GOLDEN / f"{name}.npz"))
        self.about = json.loads(str(self.arrays["about"]))
        self.config = released_config(**self.about["config"])
        self.seed = self.about["seed"]
        self.codec = released_codec(self.config, self.seed)

    def frames(self, path: str) -> np.ndarray:
        count = self.about["frames"]
        if path == "codes":
            return random_codes(count, 4, 625, self.seed)
        return random_hidden(count, self.about["config"]["gpt_hidden"], self.seed)


@pytest.fixture(scope="module", params=CASES)
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden(request.param)


def paths(golden: Golden) -> list[str]:
    return [path for path in ("codes", "hidden") if f"{path}_mel" in golden.arrays]


def test_mel_of_both_decode_paths(golden: Golden) -> None:
    assert "codes" in paths(golden)
    for path in paths(golden):
        expected = golden.arrays[f"{path}_mel"]
        mel = golden.codec.mel(golden.frames(path))
        assert mel.shape == expected.shape
        assert np.abs(expected).max() > 0.5
        np.testing.assert_allclose(mel, expected, atol=1e-3, rtol=0)


def test_waveform_of_both_decode_paths(golden: Golden) -> None:
    for path in paths(golden):
        expected = golden.arrays[f"{path}_wave"]
        wave = golden.codec.decode(golden.frames(path))
        assert wave.shape == expected.shape
        assert np.abs(expected).max() > 0.05
        np.testing.assert_allclose(wave, expected, atol=1e-3, rtol=0)


def test_encoder_codes_are_equal(golden: Golden) -> None:
    expected = golden.arrays["encoded"]
    codes = golden.codec.encode(random_pcm(golden.about["samples"], golden.seed))
    assert len(np.unique(expected)) > 20
    np.testing.assert_array_equal(codes, expected)


@pytest.mark.parametrize("name", ["small_trained", "full_trained"])
def test_expected_tensors_are_exactly_those_of_the_reference(name: str) -> None:
    golden = Golden(name)
    names = json.loads(str(golden.arrays["tensors"]))
    for part in ("dvae", "decoder", "vocos"):
        assert sorted(expected_tensors(golden.config, part)) == names[part]


def test_the_two_quantiser_arithmetics_are_told_apart() -> None:
    trained, current = Golden("small_trained"), Golden("small_current")
    difference = np.abs(trained.arrays["codes_mel"] - current.arrays["codes_mel"]).max()
    assert difference > 1e-2
    assert (trained.arrays["encoded"] != current.arrays["encoded"]).any()
