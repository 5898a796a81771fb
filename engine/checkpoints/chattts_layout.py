"""The files of a ChatTTS release: where they are, what they must hold, and a check of all of it.

    asset/gpt/config.json, asset/gpt/model.safetensors     a bare LlamaModel
    asset/Embed.safetensors                                embeddings, and heads under weight norm
    asset/{DVAE,Decoder,Vocos}.safetensors                 the codec
    asset/tokenizer/{tokenizer.json,tokenizer_config.json,special_tokens_map.json}
    asset/spk_stat.pt (or spk_stat.txt)                    optional: statistics of random speakers

Only headers are read here, so that a release of a gigabyte is checked in milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from engine.checkpoints.base import CheckpointError

Shape = tuple[int, ...]
Header = dict[str, tuple[str, Shape]]
"""Of one safetensors file: name -> (dtype, shape)."""

GPT_CONFIG = "asset/gpt/config.json"
GPT = "asset/gpt/model.safetensors"
EMBED = "asset/Embed.safetensors"
DVAE = "asset/DVAE.safetensors"
DECODER = "asset/Decoder.safetensors"
VOCOS = "asset/Vocos.safetensors"
TOKENIZER = "asset/tokenizer/tokenizer.json"
TOKENIZER_CONFIG = "asset/tokenizer/tokenizer_config.json"
SPECIAL_TOKENS = "asset/tokenizer/special_tokens_map.json"
CODEC_FILES: dict[str, Literal["dvae", "decoder", "vocos"]] = {
    DVAE: "dvae",
    DECODER: "decoder",
    VOCOS: "vocos",
}
CODEC_SIZES = "voxgate_codec"
"""Key in the GPT configuration of releases whose codec has other sizes than the official one: the
arguments of `engine.codec.config.released_config`."""
RELEASE_FILES = (
    *(GPT_CONFIG, GPT, EMBED, DVAE, DECODER, VOCOS),
    *(TOKENIZER, TOKENIZER_CONFIG, SPECIAL_TOKENS),
)
STATISTICS = ("asset/spk_stat.pt", "asset/spk_stat.txt", "asset/spk_stat.npy")

_FLOATS = {"F32", "F16", "BF16"}
_MAX_HEADER_BYTES = 100_000_000


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the language model; the defaults are the release's."""

    hidden: int = 768
    intermediate: int = 3072
    layers: int = 20
    heads: int = 12
    positions: int = 4096
    text_vocab: int = 21178
    code_vocab: int = 626
    codebooks: int = 4
    rms_norm_eps: float = 1e-6
    rope_theta: float = 1e4

    @property
    def end_code(self) -> int:
        """Drawn by any codebook, it ends the speech; it is no codec code."""
        return self.code_vocab - 1


def sizes_from(config: Mapping[str, Any]) -> Sizes:
    """Sizes named by a GPT configuration; what it leaves out is as released.

    Raises `ValueError` naming every field that cannot be used.
    """
    wrong: list[str] = []
    usual = Sizes()

    def whole(key: str, default: int) -> int:
        value = config.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            wrong.append(f"{key} is {value!r}, a positive whole number is needed")
            return default
        return value

    def number(source: Mapping[str, Any], key: str, default: float) -> float:
        value = source.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            wrong.append(f"{key} is {value!r}, a positive number is needed")
            return default
        return float(value)

    rope = config if "rope_theta" in config else config.get("rope_parameters") or {}
    found = Sizes(
        hidden=whole("hidden_size", usual.hidden),
        intermediate=whole("intermediate_size", usual.intermediate),
        layers=whole("num_hidden_layers", usual.layers),
        heads=whole("num_attention_heads", usual.heads),
        positions=whole("max_position_embeddings", usual.positions),
        text_vocab=whole("num_text_tokens", usual.text_vocab),
        code_vocab=whole("num_audio_tokens", usual.code_vocab),
        codebooks=whole("num_vq", usual.codebooks),
        rms_norm_eps=number(config, "rms_norm_eps", usual.rms_norm_eps),
        rope_theta=number(rope, "rope_theta", usual.rope_theta),
    )
    if found.hidden % found.heads:
        wrong.append(f"hidden_size {found.hidden} is no multiple of {found.heads} heads")
    key_heads = config.get("num_key_value_heads", found.heads)
    if key_heads != found.heads:
        wrong.append(f"num_key_value_heads is {key_heads}, ChatTTS has as many as heads")
    if config.get("hidden_act", "silu") != "silu":
        wrong.append(f"hidden_act is {config['hidden_act']!r}, ChatTTS has 'silu'")
    if wrong:
        raise ValueError("; ".join(wrong))
    return found


def gpt_tensors(sizes: Sizes) -> dict[str, Shape]:
    """Tensors of `GPT`. Its `embed_tokens.weight` is never used and may be absent."""
    hidden, inner = sizes.hidden, sizes.intermediate
    tensors: dict[str, Shape] = {"norm.weight": (hidden,)}
    for layer in range(sizes.layers):
        at = f"layers.{layer}."
        for name in ("q", "k", "v", "o"):
            tensors[f"{at}self_attn.{name}_proj.weight"] = (hidden, hidden)
        tensors[f"{at}mlp.gate_proj.weight"] = (inner, hidden)
        tensors[f"{at}mlp.up_proj.weight"] = (inner, hidden)
        tensors[f"{at}mlp.down_proj.weight"] = (hidden, inner)
        tensors[f"{at}input_layernorm.weight"] = (hidden,)
        tensors[f"{at}post_attention_layernorm.weight"] = (hidden,)
    return tensors


def embed_tensors(sizes: Sizes) -> dict[str, Shape]:
    """Tensors of `EMBED`; `original0` and `original1` are a weight norm's gain and direction."""
    tensors: dict[str, Shape] = {"emb_text.weight": (sizes.text_vocab, sizes.hidden)}
    heads = {"head_text": sizes.text_vocab}
    for book in range(sizes.codebooks):
        tensors[f"emb_code.{book}.weight"] = (sizes.code_vocab, sizes.hidden)
        heads[f"head_code.{book}"] = sizes.code_vocab
    for head, rows in heads.items():
        tensors[f"{head}.parametrizations.weight.original0"] = (rows, 1)
        tensors[f"{head}.parametrizations.weight.original1"] = (rows, sizes.hidden)
    return tensors


def read_header(path: Path) -> Header:
    """Names, dtypes and shapes of a safetensors file, its size checked. Raises `ValueError`."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _MAX_HEADER_BYTES):
            raise ValueError("is no safetensors file or was cut short")
        try:
            entries = json.loads(file.read(length))
            entries.pop("__metadata__", None)
            end = max((entry["data_offsets"][1] for entry in entries.values()), default=0)
            header = {n: (str(e["dtype"]), tuple(e["shape"])) for n, e in entries.items()}
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise ValueError(f"is no safetensors file ({error!r})") from error
    if end > size - 8 - length:
        raise ValueError(f"was cut short: {end + 8 + length} bytes belong, {size} are there")
    return header


def tensor_problems(header: Header, expected: Mapping[str, Shape]) -> list[str]:
    """What of `expected` a file lacks or holds otherwise, one sentence each.

    Tensors beyond the expected are no problem: releases carry some that nobody reads.
    """
    problems = []
    for name, shape in expected.items():
        if name not in header:
            problems.append(f"tensor {name} {list(shape)} is missing")
            continue
        dtype, found = header[name]
        if found != shape:
            problems.append(f"tensor {name} has shape {list(found)}, expected {list(shape)}")
        if dtype not in _FLOATS:
            problems.append(f"tensor {name} is {dtype}, expected one of {sorted(_FLOATS)}")
    return problems


def error(directory: Path, problems: list[str]) -> CheckpointError:
    """All problems of a release in one message."""
    listed = "".join(f"\n  - {problem}" for problem in problems)
    return CheckpointError(f"{directory} is not a usable ChatTTS release:{listed}")
