"""GPTQ: the grid it promises, less error than rounding, and a checkpoint that loads."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from bench import gptq
from engine.checkpoints.random_release import SMALL, write_release
from engine.quantization import INT4_GROUP, is_linear, quantised, scales


def correlated(positions: int, width: int) -> torch.Tensor:
    """Inputs whose channels go together, as activations' do: there an error can be made good."""
    generator = torch.Generator().manual_seed(0)
    few = torch.randn(positions, width // 8, generator=generator)
    mixed = few @ torch.randn(width // 8, width, generator=generator)
    return mixed + 0.1 * torch.randn(positions, width, generator=generator)


def test_outputs_change_less_than_by_rounding_to_the_nearest() -> None:
    width = 2 * INT4_GROUP
    inputs = correlated(400, width)
    weight = torch.randn(16, width, generator=torch.Generator().manual_seed(1))
    grid, steps = gptq.rounded_weight(weight, inputs.T @ inputs)
    per_input = steps.repeat_interleave(INT4_GROUP, 1)
    whole = grid / per_input
    assert torch.allclose(whole, whole.round(), atol=1e-4)
    assert whole.abs().max() <= 7.001
    nearest = scales("int4", weight).repeat_interleave(INT4_GROUP, 1)
    rounded = (weight / nearest).round().clamp(-7, 7) * nearest
    error = (inputs @ (weight - grid).T).square().sum()
    assert error < 0.7 * (inputs @ (weight - rounded).T).square().sum()


def test_inputs_that_never_came_do_no_harm() -> None:
    weight = torch.randn(4, INT4_GROUP, generator=torch.Generator().manual_seed(1))
    grid, steps = gptq.rounded_weight(weight, torch.zeros(INT4_GROUP, INT4_GROUP))
    assert torch.isfinite(grid).all()
    assert torch.isfinite(steps).all()


def test_a_checkpoint_on_its_grid_packs_without_another_error(tmp_path: Path) -> None:
    source = tmp_path / "release"
    write_release(source, SMALL, 0)
    target = tmp_path / "int4"
    assert gptq.main([str(source), str(target), "--calibration", "1"]) == 0
    tensors = load_file(gptq.lm_file(target))
    before = load_file(gptq.lm_file(source))
    linear = [name for name in tensors if is_linear(name)]
    assert linear
    assert {name for name in tensors if not name.endswith("weight_scale")} == before.keys()
    name = linear[0]
    layer = name.removesuffix(".weight")
    packed = dict(quantised("int4", [(n, t) for n, t in tensors.items() if n.startswith(layer)]))
    nibbles = (packed[f"{layer}.weight_packed"][:, :, None] >> (4 * torch.arange(8))) & 15
    steps = tensors[f"{layer}.weight_scale"].repeat_interleave(INT4_GROUP, 1)
    back = (nibbles.flatten(1) - 8) * steps
    assert torch.allclose(back, tensors[name].float(), atol=float(steps.max()) * 0.02)


def test_a_folder_that_is_neither_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gptq.main([str(tmp_path), str(tmp_path / "out")]) == 1
    assert "neither" in capsys.readouterr().err
