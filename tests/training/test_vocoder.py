"""The training form of the codec is the codec: what it learns drops into the shipped file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

import engine.voices
from engine.codec.model import Codec
from engine.codec.names import gather
from training.vocoder import Renderer

VOICE = Path(engine.voices.__file__).parent / "mini"
CONFIG = json.loads((VOICE / "config.json").read_text())


def shipped() -> dict[str, torch.Tensor]:
    return load_file(VOICE / "codec.safetensors")


def test_exported_weights_decode_as_the_ones_they_came_from() -> None:
    codec = Codec.from_mini(CONFIG, shipped())
    again = Codec.from_mini(CONFIG, gather(codec, codec.config, "mini_decoder"))
    codes = np.random.default_rng(0).integers(0, 625, (20, 4)).astype(np.int16)
    np.testing.assert_allclose(again.decode(codes), codec.decode(codes), atol=1e-5)


def test_rendering_a_batch_for_training_equals_decoding_each() -> None:
    codec = Codec.from_mini(CONFIG, shipped())
    codes = np.random.default_rng(1).integers(0, 625, (2, 20, 4)).astype(np.int16)
    with torch.no_grad():
        mel, waves = Renderer(codec, batch=2, frames=20)(torch.from_numpy(codes).long())
    assert mel.shape == (2, 40, 100)
    for row, wave in zip(codes, waves, strict=True):
        # The first and last hops of a segment lack neighbours to overlap with.
        np.testing.assert_allclose(wave[1024:-1024], codec.decode(row)[1024:-1024], atol=1e-4)


def test_gradients_reach_decoder_and_vocoder() -> None:
    codec = Codec.from_mini(CONFIG, shipped())
    assert codec.codes is not None
    learned = [*codec.codes.parameters(), *codec.vocoder.parameters()]
    for parameter in learned:
        parameter.requires_grad_(True)
    codes = torch.zeros(1, 6, 4, dtype=torch.long)
    _, wave = Renderer(codec, batch=1, frames=6)(codes)
    wave.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in learned)
