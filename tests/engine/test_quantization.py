from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.quantization import INT4_GROUP, Quantization, chosen, packed, quantised, vllm_config

NAME = "layers.0.mlp.up_proj"


def test_without_quantisation_vllm_is_told_nothing() -> None:
    assert vllm_config("none") is None


def test_vllm_reads_the_scheme_as_dynamic_int8() -> None:
    from vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors import (
        CompressedTensorsConfig,
    )

    config = vllm_config("int8")
    assert config is not None
    scheme = CompressedTensorsConfig.from_config(config).target_scheme_map["Linear"]
    assert (scheme["weights"].num_bits, scheme["weights"].strategy) == (8, "channel")
    assert scheme["input_activations"].dynamic


@given(seed=st.integers(0, 2**31), spread=st.floats(1e-4, 1e3))
def test_a_weight_comes_back_to_half_a_step_of_its_channel(seed: int, spread: float) -> None:
    weight = torch.randn(7, 12, generator=torch.Generator().manual_seed(seed)) * spread
    named = dict(quantised("int8", [(f"{NAME}.weight", weight)]))
    stored, scale = named[f"{NAME}.weight"], named[f"{NAME}.weight_scale"]
    assert stored.dtype == torch.int8
    assert scale.shape == (7, 1)
    assert ((stored * scale - weight).abs() <= 0.5001 * scale).all()


@pytest.mark.parametrize("kind", ["none", "int8", "fp8", "int4"])
def test_vllm_knows_every_scheme_and_it_is_found_again(kind: Quantization) -> None:
    from vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors import (
        CompressedTensorsConfig,
    )

    config = vllm_config(kind)
    assert chosen(config) == kind
    if config is not None:
        assert "Linear" in CompressedTensorsConfig.from_config(config).target_scheme_map


def test_four_bits_come_back_to_half_a_step_of_their_group() -> None:
    weight = torch.randn(6, 4 * INT4_GROUP, generator=torch.Generator().manual_seed(0))
    named = dict(quantised("int4", [(f"{NAME}.weight", weight)]))
    stored, scale = named[f"{NAME}.weight_packed"], named[f"{NAME}.weight_scale"]
    assert stored.shape == (6, weight.shape[1] // 8)
    assert scale.shape == (6, 4)
    nibbles = (stored[:, :, None] >> (4 * torch.arange(8))) & 15
    steps = scale.repeat_interleave(INT4_GROUP, 1)
    back = (nibbles.flatten(1) - 8) * steps
    assert ((back - weight).abs() <= 0.5001 * steps).all()


def test_scales_that_a_checkpoint_brings_are_kept() -> None:
    scale = torch.full((2, 1), 0.5)
    weight = torch.tensor([[1.0, -0.5] * 32, [2.0, 0.0] * 32])
    tensors = [(f"{NAME}.weight", weight), (f"{NAME}.weight_scale", scale)]
    named = dict(quantised("int4", tensors))
    assert torch.equal(named[f"{NAME}.weight_scale"], scale)
    assert torch.equal(named[f"{NAME}.weight_packed"], packed((weight / 0.5).int()))


def test_a_channel_of_zeros_stays_zero() -> None:
    named = dict(quantised("int8", [(f"{NAME}.weight", torch.zeros(2, 4))]))
    assert not (named[f"{NAME}.weight"] * named[f"{NAME}.weight_scale"]).any()


def test_everything_but_linear_layers_passes_untouched() -> None:
    tensors = [("norm.weight", torch.ones(4)), ("layers.0.input_layernorm.weight", torch.ones(4))]
    assert [(n, t) for n, t in quantised("int8", tensors)] == tensors
