"""Weights of a ChatTTS release under the names the language model loads.

layers.*, norm.* -> model.layers.*, model.norm.*; heads under weight norm -> fused heads;
embeddings keep their names; the GPT's own token embedding, which ChatTTS never uses, is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

_GAIN = ".parametrizations.weight.original0"
_DIRECTION = ".parametrizations.weight.original1"


def canonical(
    weights: Iterable[tuple[str, torch.Tensor]],
) -> Iterator[tuple[str, torch.Tensor]]:
    """Rename and fuse, lazily: at most the halves of unfinished heads are held back.

    Raises `ValueError` when half of a head is missing.
    """
    halves: dict[str, dict[str, torch.Tensor]] = {}
    for name, tensor in weights:
        for suffix in (_GAIN, _DIRECTION):
            if name.endswith(suffix):
                head = name.removesuffix(suffix)
                parts = halves.setdefault(head, {})
                parts[suffix] = tensor
                if len(parts) == 2:
                    del halves[head]
                    yield f"{head}.weight", fuse(parts[_GAIN], parts[_DIRECTION])
                break
        else:
            if name.startswith(("layers.", "norm.")):
                yield f"model.{name}", tensor
            elif name != "embed_tokens.weight":
                yield name, tensor
    if halves:
        raise ValueError(f"weight norm is incomplete for {', '.join(sorted(halves))}")


def fuse(gain: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
    """The weight (rows, columns) of a weight norm over rows, in float32."""
    rows = direction.float()
    fused: torch.Tensor = rows * (gain.float() / rows.norm(dim=1, keepdim=True))
    return fused
