"""Names and fused heads of a ChatTTS release's weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from engine.checkpoints.chattts_weights import canonical


def test_a_fused_head_is_torchs_weight_norm() -> None:
    torch.manual_seed(0)
    head = weight_norm(nn.Linear(16, 10, bias=False))
    head.parametrizations.weight.original0.data.uniform_(0.5, 2)
    stored = {f"head_code.2.{name}": tensor for name, tensor in head.state_dict().items()}
    found = dict(canonical(stored.items()))
    assert list(found) == ["head_code.2.weight"]
    assert torch.allclose(found["head_code.2.weight"], head.weight, atol=1e-6, rtol=0)


def test_layers_are_renamed_embeddings_kept_and_the_unused_embedding_dropped() -> None:
    names = [
        "layers.3.mlp.up_proj.weight",
        "norm.weight",
        "embed_tokens.weight",
        "emb_text.weight",
        "emb_code.0.weight",
    ]
    found = dict(canonical((name, torch.full((1,), i)) for i, name in enumerate(names)))
    assert {name: int(tensor) for name, tensor in found.items()} == {
        "model.layers.3.mlp.up_proj.weight": 0,
        "model.norm.weight": 1,
        "emb_text.weight": 3,
        "emb_code.0.weight": 4,
    }


def test_half_a_head_is_an_error() -> None:
    half = {"head_text.parametrizations.weight.original1": torch.ones(3, 2)}
    with pytest.raises(ValueError, match="incomplete for head_text"):
        list(canonical(half.items()))


def test_tensors_pass_one_at_a_time() -> None:
    """A release is a gigabyte: nothing but halves of heads may be held back."""
    taken = []

    def weights():
        for name in ("layers.0.a", "layers.1.a", "layers.2.a"):
            taken.append(name)
            yield name, torch.ones(1)

    stream = canonical(weights())
    next(stream)
    assert taken == ["layers.0.a"]
