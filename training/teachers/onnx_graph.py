"""An ONNX graph run in PyTorch, one input at a time, on any device.

onnxruntime for CUDA is not at hand everywhere PyTorch is. Floats live on the device, integers
(shapes and indices) on the CPU, where they are read without waiting for the device. Dynamically
quantised products become products of floats, whose weights are dequantised once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor

from training.teachers.onnx_ops import OPS, Node, Value

_DRAWN = frozenset(("RandomNormalLike", "RandomUniformLike"))


class UnknownOperator(Exception):
    """The graph has operators that are not written here; the message names them."""


@dataclass(slots=True)
class _Step:
    node: Node
    inputs: list[str]
    outputs: list[str]
    unused_after: list[str] = field(default_factory=list)


class OnnxGraph:
    """Callable with the graph's inputs by name.

    outputs: names of values to return, inner ones too; default: the graph's own.
    replaced: operator to use instead of the one the node of that name has.
    """

    def __init__(
        self,
        path: Path,
        device: torch.device,
        *,
        outputs: Sequence[str] = (),
        replaced: Mapping[str, str] | None = None,
    ) -> None:
        """Raises `UnknownOperator`."""
        graph = onnx.load(str(path)).graph
        self._device = device
        self._constants: dict[str, Tensor] = {
            tensor.name: self._placed(numpy_helper.to_array(tensor)) for tensor in graph.initializer
        }
        self._inputs = [value.name for value in graph.input]
        alias: dict[str, str] = {}
        steps: list[_Step] = []
        rounded = _rounded_biases(graph)
        for stored in graph.node:
            operator = (replaced or {}).get(stored.name, stored.op_type)
            inputs = [alias.get(name, name) for name in stored.input]
            if operator == "Identity" or stored.name in rounded:
                alias[stored.output[0]] = inputs[0]
                continue
            attributes = {a.name: onnx.helper.get_attribute_value(a) for a in stored.attribute}
            for name, value in attributes.items():
                if isinstance(value, onnx.TensorProto):
                    attributes[name] = torch.from_numpy(np.array(numpy_helper.to_array(value)))
            if operator == "Constant":
                constant = attributes["value"]
                self._constants[stored.output[0]] = self._placed(constant.numpy())
                continue
            node = Node(operator, stored.name, attributes, len(stored.output), device)
            steps.append(_Step(node, inputs, list(stored.output)))
        self._outputs = [
            alias.get(name, name) for name in outputs or [value.name for value in graph.output]
        ]
        if unknown := sorted({step.node.operator for step in steps} - OPS.keys()):
            raise UnknownOperator(f"{path} needs {', '.join(unknown)}")
        self._steps = self._folded(_needed(steps, self._outputs))
        last: dict[str, _Step] = {name: step for step in self._steps for name in step.inputs}
        for name, step in last.items():
            if name not in self._constants and name not in self._outputs:
                step.unused_after.append(name)

    @torch.inference_mode()
    def __call__(self, **inputs: np.ndarray[Any, Any]) -> list[Tensor]:
        """The outputs, floats on the device. Raises `RuntimeError` naming the node that failed."""
        values: dict[str, Value] = {"": None}
        for name in self._inputs:
            values[name] = self._placed(np.asarray(inputs[name]))
        for step in self._steps:
            self._run(step, values)
            for name in step.unused_after:
                del values[name]
        return [self._value(name, values) for name in self._outputs]  # type: ignore[misc]

    def _run(self, step: _Step, values: dict[str, Value]) -> None:
        given = [self._value(name, values) for name in step.inputs]
        try:
            made = OPS[step.node.operator](step.node, given)
        except Exception as error:
            shapes = [None if v is None else tuple(v.shape) for v in given]
            raise RuntimeError(f"{step.node.operator} {step.node.name} of {shapes}") from error
        made = made if isinstance(made, tuple) else (made,)
        values.update(zip(step.outputs, made, strict=False))

    def _value(self, name: str, values: Mapping[str, Value]) -> Value:
        constant = self._constants.get(name)
        return values[name] if constant is None else constant

    def _folded(self, steps: list[_Step]) -> list[_Step]:
        """Without the steps whose inputs are all known now."""
        kept = []
        for step in steps:
            constant = all(not name or name in self._constants for name in step.inputs)
            if not constant or not step.inputs or step.node.operator in _DRAWN:
                kept.append(step)
                continue
            values: dict[str, Value] = {"": None}
            with torch.no_grad():
                self._run(step, values)
            self._constants.update({k: v for k, v in values.items() if v is not None})
        return kept

    def _placed(self, array: np.ndarray[Any, Any]) -> Tensor:
        tensor = torch.from_numpy(np.array(array))
        return tensor.float().to(self._device) if tensor.is_floating_point() else tensor


def _needed(steps: list[_Step], outputs: Sequence[str]) -> list[_Step]:
    """The steps on the way to the outputs, in their order."""
    wanted = set(outputs)
    kept = []
    for step in reversed(steps):
        if wanted.intersection(step.outputs):
            wanted.update(step.inputs)
            kept.append(step)
    return kept[::-1]


def _rounded_biases(graph: onnx.GraphProto) -> set[str]:
    """Nodes that round a bias to steps of the product it is added to: without quantisation there
    are no steps to round to."""
    made_by = {name: node for node in graph.node for name in node.output}
    found = set()
    for node in graph.node:
        if node.op_type != "Add" or not any(i.endswith("_output_quantized") for i in node.input):
            continue
        for name in node.input:
            source = made_by.get(name)
            while source is not None and source.op_type in ("Reshape", "Cast", "Floor"):
                if source.op_type != "Reshape":
                    found.add(source.name)
                source = made_by.get(source.input[0])
    return found
