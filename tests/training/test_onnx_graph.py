"""Graphs run in PyTorch as they run in onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from training.teachers.onnx_graph import OnnxGraph, UnknownOperator

DRAW = np.random.default_rng(0)
CPU = torch.device("cpu")


def constant(name: str, value: np.ndarray) -> onnx.TensorProto:
    return numpy_helper.from_array(value, name)


def saved(
    path: Path,
    nodes: list[onnx.NodeProto],
    constants: dict[str, np.ndarray],
    shape: list[int | str],
    result: str = "y",
) -> Path:
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(result, TensorProto.FLOAT, None)],
        [constant(name, value) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    file = path / "small.onnx"
    onnx.save(model, file)
    return file


def both(file: Path, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": x})
    (found,) = OnnxGraph(file, CPU)(x=x)
    return found.numpy(), expected


def weights(*shape: int) -> np.ndarray:
    return DRAW.normal(size=shape).astype(np.float32)


def integers(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


CASES = {
    "convolution of uneven padding": (
        [helper.make_node("Conv", ["x", "w", "b"], ["y"], pads=[2, 1], dilations=[2])],
        {"w": weights(3, 2, 3), "b": weights(3)},
    ),
    "upsampling convolution": (
        [
            helper.make_node(
                "ConvTranspose", ["x", "w"], ["y"], strides=[2], pads=[1, 1], output_padding=[1]
            )
        ],
        {"w": weights(2, 4, 3)},
    ),
    "slices, backwards too": (
        [helper.make_node("Slice", ["x", "from", "to", "axes", "steps"], ["y"])],
        {
            "from": integers(-1, 1),
            "to": integers(-9, 1_000_000),
            "axes": integers(2, 1),
            "steps": integers(-2, 1),
        },
    ),
    "shapes reckoned in the graph": (
        [
            helper.make_node("Shape", ["x"], ["s"]),
            helper.make_node("Gather", ["s", "last"], ["n"], axis=0),
            helper.make_node("Mul", ["n", "two"], ["m"]),
            helper.make_node("Concat", ["minus", "m"], ["to"], axis=0),
            helper.make_node("Reshape", ["x", "to"], ["y"]),
        ],
        {"last": integers(2), "two": integers(2), "minus": integers(-1)},
    ),
    "reflected edges": (
        [helper.make_node("Pad", ["x", "pads"], ["y"], mode="reflect")],
        {"pads": integers(0, 0, 2, 0, 0, 1)},
    ),
    "nearest neighbours": (
        [
            helper.make_node(
                "Resize", ["x", "", "scales"], ["y"], mode="nearest",
                coordinate_transformation_mode="asymmetric", nearest_mode="floor",
            )
        ],
        {"scales": np.array([1, 1, 3], np.float32)},
    ),
    "norm, mean and power": (
        [
            helper.make_node("LayerNormalization", ["x", "gain", "bias"], ["n"], axis=-1),
            helper.make_node("Pow", ["n", "two"], ["p"]),
            helper.make_node("ReduceMean", ["p", "axes"], ["y"], keepdims=1),
        ],
        {
            "gain": weights(10), "bias": weights(10),
            "two": np.float32(2), "axes": integers(1),
        },
    ),
    "expansion, by ones too": (
        [helper.make_node("Expand", ["x", "to"], ["y"])],
        {"to": integers(3, 1, 2, 1)},
    ),
    "running sum and softmax": (
        [
            helper.make_node("CumSum", ["x", "axis"], ["c"]),
            helper.make_node("Softmax", ["c"], ["y"], axis=1),
        ],
        {"axis": np.array(2, np.int64)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_operators_agree_with_onnxruntime(case: str, tmp_path: Path) -> None:
    nodes, constants = CASES[case]
    file = saved(tmp_path, nodes, constants, [2, 2, "n"])
    found, expected = both(file, weights(2, 2, 10))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_quantised_products_are_those_of_the_dequantised_weights(tmp_path: Path) -> None:
    """onnxruntime rounds the left factor to 8 bits; here it stays as it is."""
    right = DRAW.integers(0, 255, (6, 5)).astype(np.uint8)
    scale, zero = np.float32(0.02), np.uint8(128)
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]),
        helper.make_node("MatMulInteger", ["q", "w", "zero", "wz"], ["i"]),
        helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["scale", "ws"], ["both"]),
        helper.make_node("Mul", ["f", "both"], ["y"]),
    ]
    file = saved(tmp_path, nodes, {"w": right, "wz": zero, "ws": scale}, [4, 6])
    x = weights(4, 6)
    found, expected = both(file, x)
    exact = x @ ((right.astype(np.float32) - 128) * scale)
    np.testing.assert_allclose(found, exact, atol=1e-4)
    np.testing.assert_allclose(found, expected, atol=0.2)


def test_inner_values_can_be_had_and_operators_replaced(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Greater", ["x", "zero"], ["above"], name="sign"),
        helper.make_node("Cast", ["above"], ["y"], to=TensorProto.FLOAT),
    ]
    file = saved(tmp_path, nodes, {"zero": np.float32(0)}, [3])
    x = np.array([-1, 0, 1], np.float32)
    (above,) = OnnxGraph(file, CPU, outputs=["above"])(x=x)
    assert above.tolist() == [False, False, True]
    (replaced,) = OnnxGraph(file, CPU, replaced={"sign": "GreaterOrEqual"})(x=x)
    assert replaced.tolist() == [0, 1, 1]


def test_unknown_operators_are_named_when_the_graph_is_loaded(tmp_path: Path) -> None:
    file = saved(tmp_path, [helper.make_node("Erf", ["x"], ["y"])], {}, [3])
    with pytest.raises(UnknownOperator, match="Erf"):
        OnnxGraph(file, CPU)
