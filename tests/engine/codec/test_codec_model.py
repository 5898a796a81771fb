"""Loading, encoding and quantising."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bench.codec_random import random_codes, random_pcm
from engine.codec.config import CodecError, QuantizerConfig, mini_config, released_config
from engine.codec.model import Codec
from engine.codec.names import expected_tensors, faults, fill, gather, known_tensors
from engine.codec.quantizer import Quantizer


def test_quantiser_keeps_codes_that_are_on_its_grid() -> None:
    """Encoding what a code stands for gives the code back, for any groups, stages and levels."""
    for groups, residual, levels in ((2, 2, (5, 5, 5, 5)), (4, 1, (7, 5, 3)), (1, 3, (3, 3))):
        config = QuantizerConfig(groups * len(levels), groups, residual, levels)
        quantizer = Quantizer(config, encodes=True)
        for enter, leave in zip(quantizer.enter, quantizer.leave, strict=True):
            for dense in (enter, leave):
                dense.weight.data.copy_(torch.eye(len(levels)))
                dense.bias.data.zero_()
        codes = torch.from_numpy(
            random_codes(200, config.codebooks, config.codebook_size, 1).astype(np.int64)
        )
        # Later stages only where the first leaves room: values beyond the grid are clamped.
        features = quantizer.embed(codes).clamp(-0.999, 0.999)
        again = quantizer.embed(quantizer.encode(torch.atanh(features)))
        step = 2.0 / (min(levels) - 1) / 2 / (min(levels) - 1) ** (residual - 1)
        assert (again - features).abs().max() <= step + 1e-2


@pytest.mark.parametrize("levels", [(4, 5), (1, 3)])
def test_even_levels_are_refused(levels: tuple[int, ...]) -> None:
    with pytest.raises(CodecError) as caught:
        QuantizerConfig(8, levels=levels)
    assert caught.value.code == "bad_config"


def test_encoding_and_decoding_keep_the_length(small_causal_codec: Codec) -> None:
    for samples in (1024, 5000, 24_000):
        codes = small_causal_codec.encode(random_pcm(samples, 1))
        assert codes.shape == (-(-samples // 512), 3)
        assert codes.min() >= 0
        assert codes.max() < 105
        assert len(small_causal_codec.decode(codes)) == 512 * len(codes)


@pytest.mark.parametrize(
    "pcm",
    [
        np.zeros(100, np.float32),
        np.zeros((2, 24_000), np.float32),
        np.full(24_000, np.nan, np.float32),
    ],
)
def test_bad_audio_is_refused(small_causal_codec: Codec, pcm: np.ndarray) -> None:
    with pytest.raises(CodecError) as caught:
        small_causal_codec.encode(pcm)
    assert caught.value.code == "bad_audio"


def test_without_the_encoder_encoding_says_so(embedded_codec: Codec) -> None:
    with pytest.raises(CodecError, match="without its encoder"):
        embedded_codec.encode(random_pcm(24_000, 1))


def test_everything_missing_or_wrong_is_named(small_released_codec: Codec) -> None:
    config = small_released_codec.config
    state = {n: torch.zeros(s) for n, s in expected_tensors(config, "vocos").items()}
    assert faults(config, "vocos", state) == []
    del state["head.out.bias"]
    state["backbone.embed.weight"] = torch.zeros(3, 4, 5)
    state["backbone.norm.weight"] = torch.zeros(48, dtype=torch.int64)
    state["backbone.convnext.3.gamma"] = torch.zeros(48)
    found = "; ".join(faults(config, "vocos", state))
    for name in (
        "head.out.bias is missing",
        "backbone.embed.weight has shape (3, 4, 5), expected (48, 100, 7)",
        "backbone.norm.weight has type torch.int64",
        "backbone.convnext.3.gamma is not part",
    ):
        assert name in found
    with pytest.raises(CodecError, match=r"head\.out\.bias is missing") as caught:
        fill(Codec(config), config, [("vocos", state)])
    assert caught.value.code == "bad_weights"


def test_files_may_hold_windows_and_filter_banks() -> None:
    config = released_config()
    for part in ("dvae", "vocos"):
        extra = known_tensors(config, part).keys() - expected_tensors(config, part).keys()
        assert extra
        state = {n: torch.zeros(s) for n, s in known_tensors(config, part).items()}
        assert faults(config, part, state) == []


def test_a_configuration_that_lacks_something_is_refused() -> None:
    with pytest.raises(CodecError, match="codec") as caught:
        mini_config({"mel": {}, "sample_rate": 24000})
    assert caught.value.code == "bad_config"


def test_half_precision_files_load(small_causal_codec: Codec, tmp_path: Path) -> None:
    config = small_causal_codec.config
    states = {
        part: {n: t.half() for n, t in gather(small_causal_codec, config, part).items()}
        for part in ("mini_decoder", "mini_encoder")
    }
    again = Codec(config)
    fill(again, config, list(states.items()))
    codes = random_codes(20, 3, 105, 1)
    difference = again.folded().decode(codes) - small_causal_codec.decode(codes)
    assert 0 < np.abs(difference).max() < 1e-2


def test_decoding_depends_on_the_quantiser_arithmetic(small_released_codec: Codec) -> None:
    codes = random_codes(10, 4, 625, 1)
    other = Codec(
        replace(
            small_released_codec.config,
            quantizer=replace(small_released_codec.config.quantizer, finer="level"),
        )
    )
    other.load_state_dict(small_released_codec.state_dict(), strict=False)
    for mine, theirs in zip(other.modules(), small_released_codec.modules(), strict=True):
        if hasattr(mine, "scale") and isinstance(theirs.scale, type(None)):
            mine.scale = None
    other.folded()
    assert np.abs(other.mel(codes) - small_released_codec.mel(codes)).max() > 1e-2
