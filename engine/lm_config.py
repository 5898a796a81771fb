"""What the language model needs to know about a checkpoint, as stored in its `config.json`.

A model directory vLLM can load is a Llama configuration plus one dictionary, `voxgate`, that this
module reads and writes. Nothing here imports torch or vLLM.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from engine.checkpoints.base import CheckpointError

ARCHITECTURE = "VoxgateForCausalLM"
Family = Literal["mini", "chattts"]


@dataclass(frozen=True, slots=True)
class LmConfig:
    """Codebooks, vocabularies and reserved ids of one checkpoint.

    A frame is `codebooks` codes, each below `code_vocab`; `end_code` ends the piece when any
    sampled codebook draws it. `sampled_codebooks` are drawn; every other codebook must have an
    entry in `fixed_codes`. Text ids are [0, text_vocab). `end_id` and `overrun_id` are token ids
    inside the Llama `vocab_size` that are never fed to the model in code mode: vLLM wants stop ids
    inside the vocabulary. `text_end_id` ends the text mode of checkpoints with a `text_head`.
    `keep_hidden` keeps the hidden state of every frame for decoders that read it.
    """

    family: Family
    text_vocab: int
    end_id: int
    overrun_id: int
    codebooks: int = 4
    code_vocab: int = 626
    end_code: int = 625
    sampled_codebooks: tuple[int, ...] = (0, 1, 2, 3)
    fixed_codes: Mapping[int, int] = field(default_factory=dict)
    text_head: bool = False
    text_end_id: int | None = None
    keep_hidden: bool = False

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any], *, vocab_size: int) -> LmConfig:
        """Read the `voxgate` dictionary. Raises `CheckpointError` naming what is wrong."""
        known = set(cls.__dataclass_fields__)
        unknown = sorted(set(raw) - known)
        missing = sorted({"family", "text_vocab"} - set(raw))
        if unknown or missing:
            raise CheckpointError(f"voxgate config: unknown keys {unknown}, missing keys {missing}")
        values = dict(raw)
        values.setdefault("end_id", values["text_vocab"])
        values.setdefault("overrun_id", values["end_id"] + 1)
        values["sampled_codebooks"] = tuple(values.get("sampled_codebooks", (0, 1, 2, 3)))
        # JSON turns integer keys into strings.
        values["fixed_codes"] = {int(k): int(v) for k, v in values.get("fixed_codes", {}).items()}
        config = cls(**values)
        config._check(vocab_size)
        return config

    def _check(self, vocab_size: int) -> None:
        problems = []
        if self.family not in ("mini", "chattts"):
            problems.append(f"family {self.family!r} is not mini or chattts")
        if not self.sampled_codebooks:
            problems.append("no codebook is sampled")
        every = set(range(self.codebooks))
        sampled, fixed = set(self.sampled_codebooks), set(self.fixed_codes)
        if sampled | fixed != every or sampled & fixed:
            problems.append(
                f"each of {self.codebooks} codebooks must be either sampled or fixed, "
                f"got sampled {sorted(sampled)} and fixed {sorted(fixed)}"
            )
        if not 0 <= self.end_code < self.code_vocab:
            problems.append(f"end_code {self.end_code} is not below code_vocab {self.code_vocab}")
        if not 0 < self.text_vocab <= vocab_size:
            problems.append(f"text_vocab {self.text_vocab} exceeds vocab_size {vocab_size}")
        if len({self.end_id, self.overrun_id}) != 2 or not (
            min(self.end_id, self.overrun_id) >= 0
            and max(self.end_id, self.overrun_id) < vocab_size
        ):
            problems.append(
                f"end_id {self.end_id} and overrun_id {self.overrun_id} must be two ids "
                f"below vocab_size {vocab_size}"
            )
        if self.text_head and self.text_end_id is None:
            problems.append("text_head needs text_end_id")
        if problems:
            raise CheckpointError("voxgate config: " + "; ".join(problems))

    def to_dict(self) -> dict[str, Any]:
        """The `voxgate` dictionary for `config.json`."""
        raw = {name: getattr(self, name) for name in self.__dataclass_fields__}
        raw["sampled_codebooks"] = list(self.sampled_codebooks)
        raw["fixed_codes"] = {str(k): v for k, v in self.fixed_codes.items()}
        return raw


def llama_config(
    lm: LmConfig,
    *,
    hidden_size: int,
    intermediate_size: int,
    layers: int,
    heads: int,
    max_positions: int,
    rms_norm_eps: float,
    kv_heads: int | None = None,
    rope_theta: float = 10_000.0,
    dtype: str = "bfloat16",
) -> dict[str, Any]:
    """A complete `config.json` for a Llama with this language-model configuration. kv_heads: heads
    of keys and values; None: as many as of queries."""
    return {
        "architectures": [ARCHITECTURE],
        "model_type": "llama",
        "vocab_size": max(lm.text_vocab, lm.end_id + 1, lm.overrun_id + 1),
        "hidden_size": hidden_size,
        "intermediate_size": intermediate_size,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads or heads,
        "max_position_embeddings": max_positions,
        "rms_norm_eps": rms_norm_eps,
        "rope_theta": rope_theta,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": None,
        "dtype": dtype,
        "torch_dtype": dtype,
        "voxgate": lm.to_dict(),
    }
