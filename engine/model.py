"""The language model for vLLM: a stock Llama between frame handles and code heads.

Only the two ends differ from vLLM's Llama: the embedding is a pure gather keyed by token id through
the frame tables, and the logits are those of the sampled codebooks, side by side.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from vllm.config import VllmConfig
from vllm.model_executor.layers.linear import ReplicatedLinear
from vllm.model_executor.models.llama import LlamaForCausalLM

from engine.checkpoints.base import CheckpointError
from engine.checkpoints.weights import canonical
from engine.frames import FRAME_BASE, PATH_VARIABLE, SPEAKER_BASE, STATIC_BASE, FrameStore
from engine.lm_config import LmConfig
from engine.quantization import chosen, quantised


class FrameTables(nn.Module):
    """The store's tables on the model's device, at addresses that never change.

    On the CPU they are the shared memory itself; elsewhere they are copies, and `sync` brings newly
    registered rows over.
    """

    ring: Tensor
    static: Tensor
    speakers: Tensor

    def __init__(self, store: FrameStore, device: torch.device) -> None:
        super().__init__()
        self.store = store
        self._version = store.version
        for name, table in (
            ("ring", store.codes),
            ("static", store.static),
            ("speakers", store.speakers),
        ):
            shared = torch.from_numpy(table)
            self.register_buffer(name, shared.to(device), persistent=False)

    def sync(self) -> None:
        """Copy newly registered rows to the device; cheap when there is nothing new."""
        version = self.store.version
        if version == self._version or self.static.device.type == "cpu":
            return
        self._version = version
        frames, speakers = self.store.static_used, self.store.speakers_used
        self.static[:frames].copy_(torch.from_numpy(self.store.static[:frames]))
        self.speakers[:speakers].copy_(torch.from_numpy(self.store.speakers[:speakers]))


class HandleEmbedding(nn.Module):
    """Token ids (T,) to embeddings (T, hidden); see `engine.frames` for the ids."""

    offsets: Tensor

    def __init__(
        self, config: LmConfig, hidden_size: int, tables: FrameTables, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.text_vocab = config.text_vocab
        self.tables = tables
        self.text = nn.Parameter(
            torch.empty(config.text_vocab, hidden_size, dtype=dtype), requires_grad=False
        )
        rows = config.codebooks * config.code_vocab
        self.code = nn.Parameter(torch.empty(rows, hidden_size, dtype=dtype), requires_grad=False)
        self.register_buffer(
            "offsets",
            torch.arange(config.codebooks, device=self.code.device) * config.code_vocab,
            persistent=False,
        )

    def forward(self, ids: Tensor) -> Tensor:
        tables = self.tables
        ids = ids.to(torch.int64)
        is_ring, is_static, is_speaker = (
            ids >= FRAME_BASE,
            (ids >= STATIC_BASE) & (ids < FRAME_BASE),
            (ids >= SPEAKER_BASE) & (ids < STATIC_BASE),
        )
        # Every gather runs for every id; indices are brought into range where they do not apply.
        ring = tables.ring[(ids - FRAME_BASE) % tables.ring.shape[0]]
        static = tables.static[(ids - STATIC_BASE) % tables.static.shape[0]]
        codes = torch.where(is_static[:, None], static, ring).to(torch.int64) + self.offsets
        frame = self.code[codes].sum(1)
        speaker = tables.speakers[(ids - SPEAKER_BASE) % tables.speakers.shape[0]]
        text = self.text[torch.where(ids < self.text_vocab, ids, 0)]
        other = torch.where(is_speaker[:, None], speaker.to(text.dtype), text)
        return torch.where((is_ring | is_static)[:, None], frame, other)


class VoxgateForCausalLM(LlamaForCausalLM):  # type: ignore[misc]
    """Llama over frame handles. `compute_logits` gives (B, S * code_vocab) for the S sampled
    codebooks and keeps the hidden states (B, hidden) it was given as `sampled_hidden`."""

    sampled_hidden: Tensor | None = None

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        hf_config = vllm_config.model_config.hf_config
        hidden_size, dtype = hf_config.hidden_size, vllm_config.model_config.dtype
        self._quantization = chosen(getattr(hf_config, "quantization_config", None))
        self.lm_config = LmConfig.from_dict(hf_config.voxgate, vocab_size=hf_config.vocab_size)
        device = torch.get_default_device()
        store = FrameStore.attach(Path(os.environ[PATH_VARIABLE]))
        self.tables = FrameTables(store, device)
        self.model.embed_tokens = HandleEmbedding(self.lm_config, hidden_size, self.tables, dtype)
        del self.lm_head
        self.head_code = _head(
            hidden_size,
            len(self.lm_config.sampled_codebooks) * self.lm_config.code_vocab,
            dtype,
            "head_code",
        )
        self.head_text = (
            _head(hidden_size, self.lm_config.text_vocab, dtype, "head_text")
            if self.lm_config.text_head
            else None
        )

    def compute_logits(self, hidden_states: Tensor) -> Tensor:
        self.sampled_hidden = hidden_states
        logits: Tensor = self.head_code(hidden_states)
        return logits

    def compute_text_logits(self) -> Tensor:
        """Text logits (B, text_vocab) of the positions `compute_logits` saw last."""
        assert self.head_text is not None
        logits: Tensor = self.head_text(self.sampled_hidden)
        return logits

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        """Fill every parameter. Raises `CheckpointError` naming what is missing or misshapen."""
        config = self.lm_config
        targets = self._targets()
        llama: list[tuple[str, Tensor]] = []
        filled: set[str] = set()
        problems: list[str] = []
        for name, tensor in canonical(config.family, weights):
            if name.startswith("model."):
                llama.append((name.removeprefix("model."), tensor))
            elif name in targets:
                target = targets[name]
                wanted = target.shape[-1:] if name.startswith("emb_code_fixed.") else target.shape
                filled.add(name)
                if tensor.shape == wanted:
                    target.copy_(tensor)
                else:
                    problems.append(f"{name} is {tuple(tensor.shape)}, expected {tuple(wanted)}")
        layers = quantised(self._quantization, llama)
        loaded = {f"model.{name}" for name in self.model.load_weights(layers)}
        for name in targets:
            fixed = name.replace("emb_code.", "emb_code_fixed.").removesuffix(".weight")
            if not name.startswith("emb_code_fixed.") and not {name, fixed} & filled:
                problems.append(f"{name} is missing")
        ours = {name for name, _ in self.named_parameters()}
        own = {name for name in ours if not name.startswith("model.layers.")} - {
            "model.norm.weight"
        }
        # A quantised attention layer has scales of its KV cache, with values of their own.
        needed = {name for name in ours - own if ".attn." not in name}
        problems += [f"{name} is missing" for name in sorted(needed - loaded)]
        if problems:
            raise CheckpointError("language model weights: " + "; ".join(problems))
        return loaded | own

    def _targets(self) -> dict[str, Tensor]:
        """Where each tensor outside the Llama layers goes."""
        config, embedding = self.lm_config, self.model.embed_tokens
        size = config.code_vocab
        targets: dict[str, Tensor] = {"emb_text.weight": embedding.text.data}
        for i in range(config.codebooks):
            table = embedding.code.data[i * size : (i + 1) * size]
            targets[f"emb_code.{i}.weight"] = table
            if i in config.fixed_codes:
                # Without a table of its own, any code of a fixed codebook means the fixed one.
                targets[f"emb_code_fixed.{i}"] = table
        for row, i in enumerate(config.sampled_codebooks):
            head = self.head_code.weight.data[row * size : (row + 1) * size]
            targets[f"head_code.{i}.weight"] = head
        if self.head_text is not None:
            targets["head_text.weight"] = self.head_text.weight.data
        return targets

    @staticmethod
    def get_model_state_cls() -> Any:
        """Hook of vLLM's V2 model runner."""
        from engine.runners.v2 import model_state_class

        return model_state_class()


def _head(hidden_size: int, size: int, dtype: torch.dtype, prefix: str) -> Any:
    # vLLM's linear layer brings its packed CPU kernels along.
    return ReplicatedLinear(
        hidden_size, size, bias=False, params_dtype=dtype, return_bias=False, prefix=prefix
    )
