from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.quantization import int8_weights, vllm_config

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
    named = dict(int8_weights([(f"{NAME}.weight", weight)]))
    quantised, scale = named[f"{NAME}.weight"], named[f"{NAME}.weight_scale"]
    assert quantised.dtype == torch.int8
    assert scale.shape == (7, 1)
    assert ((quantised * scale - weight).abs() <= 0.5001 * scale).all()


def test_a_channel_of_zeros_stays_zero() -> None:
    named = dict(int8_weights([(f"{NAME}.weight", torch.zeros(2, 4))]))
    assert not (named[f"{NAME}.weight"] * named[f"{NAME}.weight_scale"]).any()


def test_everything_but_linear_layers_passes_untouched() -> None:
    tensors = [("norm.weight", torch.ones(4)), ("layers.0.input_layernorm.weight", torch.ones(4))]
    assert [(n, t) for n, t in int8_weights(tensors)] == tensors
