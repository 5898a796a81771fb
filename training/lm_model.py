"""The packed language model as it is trained: a Llama body between codebook tables and heads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from engine.lm_config import LmConfig
from training.lm_sequences import IGNORED, Batch


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self._size = width // heads
        shared = self._size * kv_heads
        self.q_proj, self.o_proj = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.k_proj, self.v_proj = (nn.Linear(width, shared, bias=False) for _ in range(2))

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(batch, positions, width) -> queries, keys, values (batch, heads, positions, size)."""
        q, k, v = (
            projection(x).unflatten(-1, (-1, self._size)).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        return q, k, v

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q, k, v = self.project(x)
        y = F.scaled_dot_product_attention(
            rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True, enable_gqa=True
        )
        return self.o_proj(y.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions: x (.., positions, size) by the cosines and sines of the angles."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


class Gated(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))  # type: ignore[no-any-return]


class Layer(nn.Module):
    def __init__(self, shape: Mapping[str, Any], dropout: float) -> None:
        super().__init__()
        width, eps = shape["hidden_size"], shape["rms_norm_eps"]
        self.input_layernorm = nn.RMSNorm(width, eps)
        self.self_attn = Attention(
            width, shape["num_attention_heads"], shape["num_key_value_heads"]
        )
        self.post_attention_layernorm = nn.RMSNorm(width, eps)
        self.mlp = Gated(width, shape["intermediate_size"])
        self._dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self._dropout(self.self_attn(self.input_layernorm(x), cos, sin))
        y: Tensor = x + self._dropout(self.mlp(self.post_attention_layernorm(x)))
        return y


class LanguageModel(nn.Module):
    """The packed language model, its tensors by their packed names.

    kv_heads: how many heads of keys and values to share among the heads of queries; None keeps the
    packed number. Fewer start from the mean of those they stand for (Ainslie et al. 2023).
    """

    def __init__(self, folder: Path, dropout: float, kv_heads: int | None = None) -> None:
        super().__init__()
        packed = json.loads((folder / "config.json").read_text("utf-8"))
        shape = packed | {"num_key_value_heads": kv_heads or packed["num_key_value_heads"]}
        self.shape = shape
        lm = LmConfig.from_dict(shape["voxgate"], vocab_size=shape["vocab_size"])
        width, heads = shape["hidden_size"], shape["num_attention_heads"]
        self.lm = lm
        self.emb_text = nn.Embedding(lm.text_vocab, width)
        sampled = [str(i) for i in lm.sampled_codebooks]
        self.emb_code = nn.ModuleDict({i: nn.Embedding(lm.code_vocab, width) for i in sampled})
        self.emb_code_fixed = nn.ParameterDict({str(i): torch.zeros(width) for i in lm.fixed_codes})
        self.layers = nn.ModuleList(
            Layer(shape, dropout) for _ in range(shape["num_hidden_layers"])
        )
        self.norm = nn.RMSNorm(width, shape["rms_norm_eps"])
        self.head_code = nn.ModuleDict(
            {i: nn.Linear(width, lm.code_vocab, bias=False) for i in sampled}
        )
        self._dropout = nn.Dropout(dropout)
        theta = shape.get("rope_theta") or shape["rope_parameters"]["rope_theta"]
        size = width // heads
        angle = torch.arange(shape["max_position_embeddings"])[:, None] * theta ** (
            -torch.arange(0, size, 2) / size
        )
        self.register_buffer("angle", torch.cat([angle, angle], -1), persistent=False)
        weights = load_file(folder / "model.safetensors")
        shared = packed["num_key_value_heads"] // shape["num_key_value_heads"]
        self.load_state_dict(
            {name: _pooled(name, value.float(), size, shared) for name, value in weights.items()}
        )

    def embed(self, text: Tensor, codes: Tensor, frames: Tensor) -> Tensor:
        """(batch, positions[, sampled codebooks]) -> (batch, positions, width)."""
        embedded = sum(
            (table(codes[..., i]) for i, table in enumerate(self.emb_code.values())),
            start=torch.stack(list(self.emb_code_fixed.values())).sum(0),
        )
        return torch.where(frames[..., None], embedded, self.emb_text(text))

    def forward(self, text: Tensor, codes: Tensor, frames: Tensor) -> Tensor:
        """(batch, positions[, sampled codebooks]) -> hidden (batch, positions, width)."""
        x = self._dropout(self.embed(text, codes, frames))
        angle = self.get_buffer("angle")[: text.shape[1]]
        if torch.is_autocast_enabled(x.device.type):
            x = x.bfloat16()
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        hidden: Tensor = self.norm(x)
        return hidden

    def losses(self, batch: Batch, noise: float, teacher: LanguageModel | None = None) -> Tensor:
        """Of each sampled codebook: the cross entropy, or with a teacher how far the distribution
        is from the teacher's (Kullback-Leibler divergence in nats)."""
        codes = batch.codes
        if noise:
            hit = torch.rand(codes.shape[:2], device=codes.device)[..., None] < noise
            codes = torch.where(hit, torch.randint_like(codes, self.lm.end_code), codes)
        hidden = self(batch.text, codes, batch.frames)
        counted = batch.labels[..., 0] != IGNORED
        logits = [head(hidden[counted]).float() for head in self.head_code.values()]
        if teacher is None:
            labels = batch.labels[counted]
            return torch.stack([F.cross_entropy(x, labels[:, i]) for i, x in enumerate(logits)])
        with torch.no_grad():
            told = teacher(batch.text, codes, batch.frames)[counted]
            goals = [head(told).float().log_softmax(-1) for head in teacher.head_code.values()]
        return torch.stack(
            [
                F.kl_div(x.log_softmax(-1), goal, reduction="batchmean", log_target=True)
                for x, goal in zip(logits, goals, strict=True)
            ]
        )


def _pooled(name: str, weight: Tensor, size: int, shared: int) -> Tensor:
    """Keys and values (heads * size, in) as the mean of every `shared` neighbouring heads."""
    if shared == 1 or not name.endswith(("k_proj.weight", "v_proj.weight")):
        return weight
    return weight.view(-1, shared, size, weight.shape[1]).mean(1).flatten(0, 1)
