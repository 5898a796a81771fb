"""ONNX operators in PyTorch: those that exported speech synthesisers use.

Every operator takes its node and inputs; an input that is left out is None. Semantics follow the
ONNX specification (opset 20) and onnxruntime's `com.microsoft` contributions; what no such graph
needs (steps below -1, automatic padding and the like) is not handled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Value = Tensor | None


@dataclass(slots=True)
class Node:
    """One node: what it is called, its attributes, and what it remembers between runs."""

    operator: str
    name: str
    attributes: Mapping[str, Any]
    outputs: int
    device: torch.device
    memory: dict[str, Any] = field(default_factory=dict)

    def get(self, name: str, default: Any) -> Any:
        return self.attributes.get(name, default)


Operator = Callable[[Node, Sequence[Any]], Tensor | tuple[Tensor, ...]]
OPS: dict[str, Operator] = {}


def _operator(*names: str) -> Callable[[Operator], Operator]:
    def register(function: Operator) -> Operator:
        OPS.update(dict.fromkeys(names, function))
        return function

    return register


def _ints(value: Tensor) -> list[int]:
    return [int(number) for number in value.reshape(-1).tolist()]


def _together(node: Node, *values: Tensor) -> tuple[Tensor, ...]:
    """On one device; a number alone may stay on the CPU."""
    if len({v.device for v in values if v.dim()}) < 2:
        return values
    return tuple(v if v.dim() == 0 else v.to(node.device) for v in values)


# -- arithmetic ----------------------------------------------------------------------------------


def _of_two(function: Callable[..., Tensor]) -> Operator:
    return lambda node, x: function(*_together(node, x[0], x[1]))


def _of_one(function: Callable[[Tensor], Tensor]) -> Operator:
    return lambda node, x: function(x[0])


_TWO: dict[str, Callable[..., Tensor]] = {
    "Add": torch.add,
    "Sub": torch.sub,
    "Mul": torch.mul,
    "Equal": torch.eq,
    "Greater": torch.gt,
    "GreaterOrEqual": torch.ge,
    "Less": torch.lt,
    "And": torch.logical_and,
}
_ONE: dict[str, Callable[..., Tensor]] = {
    "Sqrt": torch.sqrt,
    "Exp": torch.exp,
    "Sin": torch.sin,
    "Cos": torch.cos,
    "Atan": torch.atan,
    "Tanh": torch.tanh,
    "Sigmoid": torch.sigmoid,
    "Floor": torch.floor,
    "Round": torch.round,
    "Not": torch.logical_not,
}
OPS |= {name: _of_two(function) for name, function in _TWO.items()}
OPS |= {name: _of_one(function) for name, function in _ONE.items()}


@_operator("Div")
def _divide(node: Node, x: Sequence[Any]) -> Tensor:
    a, b = _together(node, x[0], x[1])
    return a / b if a.is_floating_point() else torch.div(a, b, rounding_mode="trunc")


@_operator("FiniteDiv")
def _divide_finite(node: Node, x: Sequence[Any]) -> Tensor:
    """0 / 0 is 0; no ONNX operator, for graphs that never meet it elsewhere."""
    return torch.nan_to_num(_divide(node, x), nan=0.0)  # type: ignore[arg-type]


@_operator("Pow")
def _power(node: Node, x: Sequence[Any]) -> Tensor:
    base, exponent = x
    if exponent.numel() == 1:
        if "exponent" not in node.memory:
            # Read once: reading waits for the device.
            node.memory["exponent"] = float(exponent)
        known = node.memory["exponent"]
        return base * base if known == 2.0 else base**known  # type: ignore[no-any-return]
    return base**exponent  # type: ignore[no-any-return]


@_operator("Clip")
def _clip(node: Node, x: Sequence[Any]) -> Tensor:
    low, high = (
        float(x[i]) if len(x) > i and x[i] is not None else bound
        for i, bound in ((1, -math.inf), (2, math.inf))
    )
    return x[0].clamp(low, high)  # type: ignore[no-any-return]


@_operator("CumSum")
def _sum_up(node: Node, x: Sequence[Any]) -> Tensor:
    return x[0].cumsum(int(x[1]), dtype=x[0].dtype)  # type: ignore[no-any-return]


@_operator("ReduceMean", "ReduceSum")
def _reduce(node: Node, x: Sequence[Any]) -> Tensor:
    if "axes" not in node.memory:
        given = len(x) > 1 and x[1] is not None
        node.memory["axes"] = _ints(x[1]) if given else list(range(x[0].dim()))
    function = torch.mean if node.operator == "ReduceMean" else torch.sum
    return function(x[0], dim=node.memory["axes"], keepdim=bool(node.get("keepdims", 1)))


@_operator("Where")
def _where(node: Node, x: Sequence[Any]) -> Tensor:
    on_device = any(v.device != torch.device("cpu") for v in x)
    device = node.device if on_device else torch.device("cpu")
    condition, yes, no = (v.to(device) for v in x)
    return torch.where(condition, yes, no)


@_operator("Cast")
def _cast(node: Node, x: Sequence[Any]) -> Tensor:
    kinds = {
        1: torch.float32, 6: torch.int32, 7: torch.int64,
        9: torch.bool, 10: torch.float32, 11: torch.float64,
    }  # fmt: skip
    kind = kinds[node.attributes["to"]]
    if kind in (torch.int32, torch.int64):
        return x[0].cpu().to(kind)  # type: ignore[no-any-return]
    return x[0].to(node.device if kind.is_floating_point else x[0].device, kind)  # type: ignore[no-any-return]


# -- shapes --------------------------------------------------------------------------------------


@_operator("Shape")
def _shape(node: Node, x: Sequence[Any]) -> Tensor:
    return torch.tensor(x[0].shape[node.get("start", 0) : node.get("end", None)])


@_operator("Unsqueeze")
def _unsqueeze(node: Node, x: Sequence[Any]) -> Tensor:
    axes = _ints(x[1])
    rank = x[0].dim() + len(axes)
    for axis in sorted(axis % rank for axis in axes):
        x = [x[0].unsqueeze(axis)]
    return x[0]  # type: ignore[no-any-return]


@_operator("Squeeze")
def _squeeze(node: Node, x: Sequence[Any]) -> Tensor:
    return x[0].squeeze(_ints(x[1])) if len(x) > 1 else x[0].squeeze()  # type: ignore[no-any-return]


@_operator("Reshape")
def _reshape(node: Node, x: Sequence[Any]) -> Tensor:
    keep = not node.get("allowzero", 0)
    wanted = [x[0].shape[i] if n == 0 and keep else n for i, n in enumerate(_ints(x[1]))]
    return x[0].reshape(wanted)  # type: ignore[no-any-return]


@_operator("Transpose")
def _transpose(node: Node, x: Sequence[Any]) -> Tensor:
    return x[0].permute(*node.attributes["perm"])  # type: ignore[no-any-return]


@_operator("Concat")
def _concat(node: Node, x: Sequence[Any]) -> Tensor:
    return torch.cat(_together(node, *x), node.attributes["axis"])


@_operator("Split")
def _split(node: Node, x: Sequence[Any]) -> tuple[Tensor, ...]:
    axis = node.get("axis", 0)
    if len(x) > 1 and x[1] is not None:
        return torch.split(x[0], _ints(x[1]), axis)
    return torch.chunk(x[0], node.outputs, axis)


@_operator("Expand")
def _expand(node: Node, x: Sequence[Any]) -> Tensor:
    value, wanted = x[0], _ints(x[1])
    # Where the wanted size is 1, the value's own stays.
    own = [1] * (len(wanted) - value.dim()) + list(value.shape)
    kept = own[: len(own) - len(wanted)]
    sizes = [max(pair) for pair in zip(own[len(kept) :], wanted, strict=True)]
    return value.expand(*kept, *sizes)  # type: ignore[no-any-return]


@_operator("Gather")
def _gather(node: Node, x: Sequence[Any]) -> Tensor:
    values, index = x
    axis = node.get("axis", 0) % values.dim()
    if index.dim() == 0:
        return values.select(axis, int(index))  # type: ignore[no-any-return]
    rows = index.reshape(-1).to(values.device).long() % values.shape[axis]
    picked = values.index_select(axis, rows)
    return picked.reshape(*values.shape[:axis], *index.shape, *values.shape[axis + 1 :])  # type: ignore[no-any-return]


@_operator("Slice")
def _slice(node: Node, x: Sequence[Any]) -> Tensor:
    value: Tensor = x[0]
    starts, ends = _ints(x[1]), _ints(x[2])
    axes = _ints(x[3]) if len(x) > 3 and x[3] is not None else list(range(len(starts)))
    steps = _ints(x[4]) if len(x) > 4 and x[4] is not None else [1] * len(starts)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        picked = range(value.shape[axis])[
            slice(start, end if step > 0 or end > -(1 << 60) else None, step)
        ]
        if step == 1:
            value = value.narrow(axis, picked.start if len(picked) else 0, len(picked))
        else:
            value = value.index_select(axis, torch.tensor(picked, device=value.device))
    return value


@_operator("ConstantOfShape")
def _constant_of_shape(node: Node, x: Sequence[Any]) -> Tensor:
    value = node.get("value", torch.zeros(1))
    made = torch.full(_ints(x[0]), value.item(), dtype=value.dtype)
    return made.to(node.device) if made.is_floating_point() else made


@_operator("Range")
def _range(node: Node, x: Sequence[Any]) -> Tensor:
    return torch.arange(*(v.item() for v in x), dtype=x[0].dtype)


@_operator("NonZero")
def _non_zero(node: Node, x: Sequence[Any]) -> Tensor:
    return torch.nonzero(x[0].cpu()).t().contiguous()


@_operator("ScatterND")
def _scatter(node: Node, x: Sequence[Any]) -> Tensor:
    values, index, updates = x[0].clone(), x[1].to(x[0].device), x[2].to(x[0].device)
    values[tuple(index.unbind(-1))] = updates
    return values  # type: ignore[no-any-return]


@_operator("Pad")
def _pad(node: Node, x: Sequence[Any]) -> Tensor:
    value, ends = x[0], _ints(x[1])
    rank = value.dim()
    pairs = [n for axis in reversed(range(rank)) for n in (ends[axis], ends[rank + axis])]
    mode = node.get("mode", b"constant").decode()
    if mode == "constant":
        fill = float(x[2]) if len(x) > 2 and x[2] is not None else 0.0
        return F.pad(value, pairs, value=fill)
    while len(pairs) > 2 and pairs[-2:] == [0, 0]:
        pairs = pairs[:-2]
    return F.pad(value, pairs, mode={"reflect": "reflect", "edge": "replicate"}[mode])


@_operator("Resize")
def _resize(node: Node, x: Sequence[Any]) -> Tensor:
    mode = node.get("mode", b"nearest").decode()
    scales = x[2].tolist()
    if mode == "nearest":
        size = [math.floor(n * s) for n, s in zip(x[0].shape, scales, strict=True)]
        return F.interpolate(x[0], size=size[2:], mode="nearest")
    return F.interpolate(x[0], scale_factor=scales[2], mode="linear", recompute_scale_factor=False)


# -- layers --------------------------------------------------------------------------------------


@_operator("MatMul")
def _matmul(node: Node, x: Sequence[Any]) -> Tensor:
    return torch.matmul(x[0], x[1])


@_operator("FusedMatMul")
def _fused_matmul(node: Node, x: Sequence[Any]) -> Tensor:
    a, b = (
        v.transpose(-1, -2) if node.get(turned, 0) else v
        for v, turned in zip(x, ("transA", "transB"), strict=True)
    )
    alpha: float = node.get("alpha", 1.0)
    return torch.matmul(a, b) * alpha


def _without_zero_point(node: Node, x: Sequence[Any]) -> Tensor:
    """The right factor of a product of integers, as floats on the device, made once if constant.

    Its scale is multiplied afterwards, by nodes of the graph.
    """
    right, zero = x[1], x[3]
    if right.is_floating_point():
        return right  # type: ignore[no-any-return]
    if "right" not in node.memory:
        zero = zero.float()
        if node.operator == "ConvInteger" and zero.dim():
            zero = zero.reshape(-1, *[1] * (right.dim() - 1))
        node.memory["right"] = (right.float() - zero).to(node.device)
    return node.memory["right"]  # type: ignore[no-any-return]


@_operator("DynamicQuantizeLinear")
def _leave_as_it_is(node: Node, x: Sequence[Any]) -> tuple[Tensor, ...]:
    if "one" not in node.memory:
        node.memory["one"] = torch.ones((), device=node.device), torch.zeros((), dtype=torch.uint8)
    return (x[0], *node.memory["one"])


@_operator("MatMulInteger")
def _matmul_integer(node: Node, x: Sequence[Any]) -> Tensor:
    return torch.matmul(x[0], _without_zero_point(node, x))


@_operator("ConvInteger")
def _conv_integer(node: Node, x: Sequence[Any]) -> Tensor:
    return _conv(node, [x[0], _without_zero_point(node, x)])  # type: ignore[return-value]


@_operator("DequantizeLinear")
def _dequantise(node: Node, x: Sequence[Any]) -> Tensor:
    zero = x[2].float().to(node.device) if len(x) > 2 and x[2] is not None else 0.0
    return (x[0].float().to(node.device) - zero) * x[1].to(node.device)  # type: ignore[no-any-return]


@_operator("Conv")
def _conv(node: Node, x: Sequence[Any]) -> Tensor:
    value, weight = x[:2]
    axes = weight.dim() - 2
    pads = list(node.get("pads", [0] * 2 * axes))
    if pads[:axes] != pads[axes:]:
        pairs = [n for axis in reversed(range(axes)) for n in (pads[axis], pads[axes + axis])]
        value, pads = F.pad(value, pairs), [0] * axes
    function: Callable[..., Tensor] = F.conv1d if axes == 1 else F.conv2d
    return function(
        value,
        weight,
        x[2] if len(x) > 2 else None,
        list(node.get("strides", [1] * axes)),
        pads[:axes],
        list(node.get("dilations", [1] * axes)),
        node.get("group", 1),
    )


@_operator("ConvTranspose")
def _conv_transpose(node: Node, x: Sequence[Any]) -> Tensor:
    pads = node.get("pads", [0, 0])
    if pads[0] != pads[1]:
        raise ValueError(f"padding {pads} is uneven")
    return F.conv_transpose1d(
        x[0],
        x[1],
        x[2] if len(x) > 2 else None,
        list(node.get("strides", [1])),
        [pads[0]],
        list(node.get("output_padding", [0])),
        node.get("group", 1),
        list(node.get("dilations", [1])),
    )


@_operator("LeakyRelu")
def _leaky(node: Node, x: Sequence[Any]) -> Tensor:
    return F.leaky_relu(x[0], node.get("alpha", 0.01))


@_operator("Softmax")
def _softmax(node: Node, x: Sequence[Any]) -> Tensor:
    return x[0].softmax(node.get("axis", -1))  # type: ignore[no-any-return]


@_operator("FastGelu")
def _fast_gelu(node: Node, x: Sequence[Any]) -> Tensor:
    biased = x[0] + x[1] if len(x) > 1 and x[1] is not None else x[0]
    return F.gelu(biased, approximate="tanh")


@_operator("LayerNormalization")
def _layer_norm(node: Node, x: Sequence[Any]) -> Tensor:
    bias = x[2] if len(x) > 2 else None
    return F.layer_norm(x[0], x[1].shape, x[1], bias, node.get("epsilon", 1e-5))


@_operator("SkipLayerNormalization")
def _skip_layer_norm(node: Node, x: Sequence[Any]) -> Tensor:
    value = x[0] + x[1]
    if len(x) > 4 and x[4] is not None:
        value = value + x[4]
    bias = x[3] if len(x) > 3 else None
    return F.layer_norm(value, x[2].shape, x[2], bias, node.get("epsilon", 1e-12))


@_operator("STFT")
def _stft(node: Node, x: Sequence[Any]) -> Tensor:
    signal = x[0][..., 0] if x[0].dim() == 3 else x[0]
    frames = signal.unfold(-1, x[2].numel(), int(x[1])) * x[2]
    spectrum = torch.fft.rfft(frames) if node.get("onesided", 1) else torch.fft.fft(frames)
    return torch.view_as_real(spectrum)


@_operator("DynamicQuantizeLSTM")
def _lstm(node: Node, x: Sequence[Any]) -> tuple[Tensor, ...]:
    """Weights (directions, inputs, 4 * hidden), int8 with a scale and zero point a direction."""
    if "layer" not in node.memory:
        node.memory["layer"] = _lstm_layer(node, x)
    layer = node.memory["layer"]
    made, (hidden, cell) = layer(x[0].to(node.device))
    steps, batch = made.shape[:2]
    directions = 1 + layer.bidirectional
    split = made.reshape(steps, batch, directions, layer.hidden_size).permute(0, 2, 1, 3)
    return split, hidden, cell


def _lstm_layer(node: Node, x: Sequence[Any]) -> nn.LSTM:
    weights, recurrent = (
        _dequantised(x[i], x[scale], x[zero]).transpose(1, 2)
        for i, scale, zero in ((1, 8, 9), (2, 10, 11))
    )
    biases, hidden = x[3], node.attributes["hidden_size"]
    directions = weights.shape[0]
    layer = nn.LSTM(weights.shape[2], hidden, bidirectional=directions == 2)
    # ONNX has the gates in the order input, output, forget, cell.
    order = torch.cat([torch.arange(hidden) + hidden * gate for gate in (0, 2, 3, 1)])
    with torch.no_grad():
        for direction in range(directions):
            end = "_reverse" if direction else ""
            for name, values in (
                ("weight_ih", weights[direction]),
                ("weight_hh", recurrent[direction]),
                ("bias_ih", biases[direction][: 4 * hidden]),
                ("bias_hh", biases[direction][4 * hidden :]),
            ):
                getattr(layer, f"{name}_l0{end}").copy_(values.cpu()[order])
    return layer.to(node.device)


def _dequantised(weights: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    directions = weights.shape[0]
    return (weights.float() - zero.float().reshape(directions, 1, -1)) * scale.cpu().reshape(
        directions, 1, -1
    )
