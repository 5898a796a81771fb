"""Codecs that the tests share."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import engine.voices
from bench.codec_random import dull, random_state
from engine.codec.config import CodecConfig, mini_config, released_config
from engine.codec.model import Codec
from engine.codec.names import Part, expected_tensors

EMBEDDED = Path(engine.voices.__file__).parent / "mini"
SMALL_SETTINGS = {
    "sample_rate": 24000,
    "mel": {"n_mels": 100, "n_fft": 1024, "hop": 256, "log_clip": 1e-5},
    "codec": {
        "enc_d": 32,
        "enc_n": 2,
        "lat": 24,
        "dec_d": 32,
        "dec_n": 3,
        "voc_d": 40,
        "voc_n": 2,
        "causal": True,
        "fsq": {"groups": 3, "residual": 1, "levels": [7, 5, 3]},
    },
}


def random_tensors(config: CodecConfig, part: Part, seed: int) -> dict[str, torch.Tensor]:
    drawn = random_state(expected_tensors(config, part), seed)
    if part == "vocos":
        drawn = dull(drawn)
    return {name: torch.from_numpy(weights) for name, weights in drawn.items()}


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def embedded_codec() -> Codec:
    """The embedded voice's codec, as it ships."""
    settings = json.loads((EMBEDDED / "config.json").read_text("utf-8"))
    return Codec.from_mini(settings, load_file(EMBEDDED / "codec.safetensors"))


@pytest.fixture(scope="session")
def small_causal_codec() -> Codec:
    """A causal codec with random weights, no residual stages and uneven levels."""
    config = mini_config(SMALL_SETTINGS)
    return Codec.from_mini(
        SMALL_SETTINGS,
        random_tensors(config, "mini_decoder", 5),
        random_tensors(config, "mini_encoder", 5),
    )


@pytest.fixture(scope="session")
def small_released_codec() -> Codec:
    """A codec of the released shape in small, with random weights."""
    config = released_config(
        gpt_hidden=64,
        quantizer_dim=64,
        dvae_hidden=40,
        decoder_hidden=48,
        bottleneck=16,
        layers=4,
        vocoder_dim=48,
        vocoder_intermediate=96,
        vocoder_layers=3,
    )
    return Codec.released(
        random_tensors(config, "dvae", 7),
        random_tensors(config, "decoder", 7),
        random_tensors(config, "vocos", 7),
        config,
    )


@pytest.fixture(scope="session")
def spoken_codes() -> np.ndarray:
    """(n, 4) codes of a real recording: a speaker prompt of the embedded voice."""
    catalogue = json.loads((EMBEDDED / "voices.json").read_text("utf-8"))
    sampled = np.array(catalogue["voices"][0]["prompts"]["en"]["codes"], np.int16)
    codes = np.full((len(sampled), 4), 312, np.int16)
    codes[:, [0, 2]] = sampled
    return codes
