"""Weights in eight bits: what vLLM is told about them, and how they are made while loading.

A checkpoint keeps its own number type; int8 weights are made from it on the way in, with one scale
an output channel. Activations get theirs token by token inside vLLM's kernels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor

Quantization = Literal["none", "int8"]

_LARGEST = 127
_LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def vllm_config(quantization: Quantization) -> dict[str, Any] | None:
    """`quantization_config` of a model's config.json, in the compressed-tensors format.

    Embeddings and code heads stay as they are: they are small, and the heads decide the sampling.
    """
    if quantization == "none":
        return None
    eight_bits = {"num_bits": 8, "type": "int", "symmetric": True}
    return {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "quantization_status": "compressed",
        "ignore": [],
        "config_groups": {
            "linear": {
                "targets": ["Linear"],
                "weights": {**eight_bits, "strategy": "channel", "dynamic": False},
                "input_activations": {**eight_bits, "strategy": "token", "dynamic": True},
            }
        },
    }


def int8_weights(weights: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """The same tensors, those of linear layers (out, in) as int8 with `weight_scale` (out, 1)."""
    for name, tensor in weights:
        layer, _, kind = name.rpartition(".")
        if kind != "weight" or layer.rpartition(".")[2] not in _LINEAR:
            yield name, tensor
            continue
        exact = tensor.float()
        scale = exact.abs().amax(1, keepdim=True).clamp_min(1e-12) / _LARGEST
        yield name, (exact / scale).round().clamp(-_LARGEST, _LARGEST).to(torch.int8)
        yield f"{layer}.weight_scale", scale
