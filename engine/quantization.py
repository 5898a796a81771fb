"""Weights in fewer bits: what vLLM is told about them, and how they are made while loading.

A checkpoint keeps its own number type; weights are rounded on the way in. `int8` and `fp8` have one
scale an output channel, and activations get theirs token by token inside vLLM's kernels; `int4` has
one scale a group of inputs, and activations keep their type. A checkpoint whose weights were chosen
for their grid (`bench.gptq`) brings its scales along.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor

Quantization = Literal["none", "int8", "fp8", "int4"]

INT4_GROUP = 64
"""Inputs that share a scale; divides the widths of all models here."""
_LARGEST = {"int8": 127.0, "fp8": 448.0, "int4": 7.0}
_FORMATS: dict[Quantization, str] = {
    "int8": "int-quantized",
    "fp8": "float-quantized",
    "int4": "pack-quantized",
}
_LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def vllm_config(quantization: Quantization) -> dict[str, Any] | None:
    """`quantization_config` of a model's config.json, in the compressed-tensors format.

    Embeddings and code heads stay as they are: they are small, and the heads decide the sampling.
    """
    if quantization == "none":
        return None
    number = {
        "num_bits": 4 if quantization == "int4" else 8,
        "type": "float" if quantization == "fp8" else "int",
        "symmetric": True,
    }
    weights = {**number, "strategy": "channel", "dynamic": False}
    activations: dict[str, Any] | None = {**number, "strategy": "token", "dynamic": True}
    if quantization == "int4":
        weights |= {"strategy": "group", "group_size": INT4_GROUP}
        activations = None
    return {
        "quant_method": "compressed-tensors",
        "format": _FORMATS[quantization],
        "quantization_status": "compressed",
        "ignore": [],
        "config_groups": {
            "linear": {"targets": ["Linear"], "weights": weights, "input_activations": activations}
        },
    }


def chosen(config: dict[str, Any] | None) -> Quantization:
    """Which of them a `quantization_config` of ours is."""
    if not config:
        return "none"
    return {format: kind for kind, format in _FORMATS.items()}[config["format"]]


def is_linear(name: str) -> bool:
    """Whether a tensor is the weight of a linear layer, which alone are rounded."""
    layer, _, kind = name.rpartition(".")
    return kind == "weight" and layer.rpartition(".")[2] in _LINEAR


def scales(quantization: Quantization, weight: Tensor) -> Tensor:
    """Of a weight (out, in): (out, 1), or (out, in / group) for int4."""
    rows, width = weight.shape
    group = INT4_GROUP if quantization == "int4" else width
    largest = weight.float().abs().reshape(rows, width // group, group).amax(2)
    return largest.clamp_min(1e-12) / _LARGEST[quantization]


def quantised(
    quantization: Quantization, weights: Iterable[tuple[str, Tensor]]
) -> Iterator[tuple[str, Tensor]]:
    """The same tensors, those of linear layers (out, in) rounded, with their scales."""
    brought: dict[str, Tensor] = {}
    if quantization == "int4":
        # A scale may come after its weight, so all are held at once; others pass one by one.
        weights = list(weights)
        brought = {name: tensor for name, tensor in weights if name.endswith(".weight_scale")}
    for name, tensor in weights:
        layer = name.rpartition(".")[0]
        if name.endswith(".weight_scale"):
            continue
        if quantization == "none" or not is_linear(name):
            yield name, tensor
            continue
        given = brought.get(f"{layer}.weight_scale")
        scale = scales(quantization, tensor) if given is None else given.float()
        largest = _LARGEST[quantization]
        per_input = scale.repeat_interleave(tensor.shape[1] // scale.shape[1], 1)
        exact = (tensor.float() / per_input).clamp(-largest, largest)
        if quantization == "int4":
            yield f"{layer}.weight_packed", packed(exact.round().to(torch.int32))
            yield f"{layer}.weight_shape", torch.tensor(tensor.shape)
            yield f"{layer}.weight_scale", scale.to(tensor.dtype)
            continue
        is_int = quantization == "int8"
        yield name, exact.round().to(torch.int8) if is_int else exact.to(torch.float8_e4m3fn)
        yield f"{layer}.weight_scale", scale


def packed(values: Tensor) -> Tensor:
    """Eight values of -8 to 7 in each int32, the first in the lowest bits: (out, in / 8)."""
    eight = (values + 8).reshape(len(values), -1, 8).to(torch.int64)
    together: Tensor = (eight << (4 * torch.arange(8))).sum(2)
    return together.to(torch.uint32).view(torch.int32)
