"""A small language model with random weights and the real architecture."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from engine.lm_config import LmConfig, llama_config

LAYERS, HIDDEN, INTERMEDIATE, HEADS = 3, 128, 256, 4


def write_random_model(
    folder: Path,
    *,
    seed: int = 0,
    text_head: bool = False,
    keep_hidden: bool = False,
    sampled: tuple[int, ...] = (0, 2),
    text_vocab: int = 200,
    dtype: str = "float32",
    max_positions: int = 2048,
) -> Path:
    """A model directory vLLM can load: mini family, `LAYERS` layers of `HIDDEN`.

    Weights are large enough that frames depend on the whole prompt, and the end code's head is
    zero, so that pieces seldom end by themselves at temperatures below one.
    """
    config = LmConfig(
        family="mini",
        text_vocab=text_vocab,
        end_id=text_vocab,
        overrun_id=text_vocab + 1,
        sampled_codebooks=sampled,
        fixed_codes={i: 312 for i in range(4) if i not in sampled},
        text_head=text_head,
        text_end_id=text_vocab - 1 if text_head else None,
        keep_hidden=keep_hidden,
    )
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int, scale: float) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * scale

    tensors = {
        "norm.weight": torch.ones(HIDDEN),
        "emb_text.weight": normal(text_vocab, HIDDEN, scale=1.0),
    }
    for i in range(4):
        tensors[f"emb_code.{i}.weight"] = normal(626, HIDDEN, scale=0.5)
        tensors[f"head_code.{i}.weight"] = normal(626, HIDDEN, scale=0.3)
        tensors[f"head_code.{i}.weight"][config.end_code] = 0
    if text_head:
        tensors["head_text.weight"] = normal(text_vocab, HIDDEN, scale=0.3)
    for layer in range(LAYERS):
        for name, shape in {
            "self_attn.q_proj": (HIDDEN, HIDDEN),
            "self_attn.k_proj": (HIDDEN, HIDDEN),
            "self_attn.v_proj": (HIDDEN, HIDDEN),
            "self_attn.o_proj": (HIDDEN, HIDDEN),
            "mlp.gate_proj": (INTERMEDIATE, HIDDEN),
            "mlp.up_proj": (INTERMEDIATE, HIDDEN),
            "mlp.down_proj": (HIDDEN, INTERMEDIATE),
        }.items():
            tensors[f"layers.{layer}.{name}.weight"] = normal(*shape, scale=shape[1] ** -0.5)
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"layers.{layer}.{name}.weight"] = torch.ones(HIDDEN)
    kind = getattr(torch, dtype)
    folder.mkdir(parents=True, exist_ok=True)
    save_file({k: v.to(kind) for k, v in tensors.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(
        json.dumps(
            llama_config(
                config,
                hidden_size=HIDDEN,
                intermediate_size=INTERMEDIATE,
                layers=LAYERS,
                heads=HEADS,
                max_positions=max_positions,
                rms_norm_eps=1e-5,
                dtype=dtype,
            )
        )
    )
    return folder


@pytest.fixture(scope="session")
def random_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The random model in float32 with codebooks 0 and 2 sampled."""
    return write_random_model(tmp_path_factory.mktemp("random-model"))


@pytest.fixture(scope="session")
def make_random_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`write_random_model` into a fresh directory."""

    def make(**options: object) -> Path:
        return write_random_model(tmp_path_factory.mktemp("random-model"), **options)  # type: ignore[arg-type]

    return make
