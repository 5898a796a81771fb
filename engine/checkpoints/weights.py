"""Canonical tensor names of a language model, whatever release its tensors come from.

Canonical: `model.layers.*` and `model.norm.weight` as in a Llama, `emb_text.weight` (text_vocab,
hidden), `emb_code.{i}.weight` and `head_code.{i}.weight` (code_vocab, hidden) and, where there is a
text mode, `head_text.weight` (text_vocab, hidden). A packed checkpoint may leave out what a fixed
codebook does not need: its head, and its embedding table in favour of the one row in use,
`emb_code_fixed.{i}` (hidden,).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torch import Tensor

from engine.lm_config import Family

Named = tuple[str, Tensor]


def canonical(family: Family, tensors: Iterable[Named]) -> Iterator[Named]:
    """Rename (and fuse, where the release needs it) the tensors of a model directory."""
    if family == "chattts":
        from engine.checkpoints import chattts_weights

        yield from chattts_weights.canonical(tensors)
        return
    for name, tensor in tensors:
        prefix = "model." if name.startswith(("layers.", "norm.")) else ""
        yield prefix + name, tensor
