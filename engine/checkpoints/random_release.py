"""Write a ChatTTS release with random weights: real files and shapes, no licence, no speech.

    python -m engine.checkpoints.random_release DIR --size full --seed 0

Every tensor is `numpy.random.Generator(PCG64([seed, crc32("FILE:TENSOR")])).standard_normal` in
float32, scaled and shifted by `_recipe`, so any one tensor can be made again anywhere.
"""

from __future__ import annotations

import argparse
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.checkpoints import chattts_layout as layout
from engine.checkpoints.chattts_layout import Shape, Sizes
from engine.checkpoints.random_tokenizer import write_tokenizer

SMALL_CODEC = {
    "quantizer_dim": 64,
    "dvae_hidden": 32,
    "decoder_hidden": 32,
    "bottleneck": 16,
    "layers": 2,
    "vocoder_dim": 32,
    "vocoder_intermediate": 64,
    "vocoder_layers": 2,
}
SMALL = Sizes(hidden=128, intermediate=256, layers=2, heads=2, positions=1024, text_vocab=4096)
FULL = Sizes()
_UNUSED_EMBEDDING_ROWS = 32_000

Done = Callable[[int], None]
"""Told how many bytes were written."""


def _nothing(_bytes: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Recipe:
    """value = shift + scale * noise, where noise is standard normal."""

    scale: float
    shift: float = 0.0


def _recipe(name: str, shape: Shape) -> Recipe:
    # Gains around 3 spread the logits as widely as a trained head does.
    if name.endswith("original0"):
        return Recipe(0.3, 3.0)
    if name.endswith(("norm.weight", "layernorm.weight", "coef")):
        return Recipe(0.1, 1.0)
    if name.startswith("emb_code"):
        return Recipe(0.5)
    if name.startswith(("emb_", "embed_tokens")) or name.endswith("original1"):
        return Recipe(1.0)
    if len(shape) < 2:
        return Recipe(0.05)
    fan_in = int(np.prod(shape[1:]))
    return Recipe(fan_in**-0.5)


def make_tensor(seed: int, file: str, name: str, shape: Shape) -> npt.NDArray[np.float32]:
    """One tensor of a random release; `file` is the path inside the release."""
    key = [seed, zlib.crc32(f"{file}:{name}".encode())]
    noise = np.random.Generator(np.random.PCG64(key)).standard_normal(shape, dtype=np.float32)
    recipe = _recipe(name, shape)
    noise *= np.float32(recipe.scale)
    noise += np.float32(recipe.shift)
    return noise


def language_model_files(sizes: Sizes) -> dict[str, dict[str, Shape]]:
    """Tensor files of the language model: path -> name -> shape."""
    gpt = layout.gpt_tensors(sizes)
    gpt["embed_tokens.weight"] = (_UNUSED_EMBEDDING_ROWS if sizes == FULL else 8, sizes.hidden)
    return {layout.GPT: gpt, layout.EMBED: layout.embed_tensors(sizes)}


def write_tensors(
    path: Path,
    tensors: Mapping[str, Shape],
    make: Callable[[str, Shape], npt.NDArray[np.float32]],
    done: Done,
) -> None:
    """Write a float32 safetensors file one tensor at a time, so that memory stays small."""
    names = sorted(tensors)
    header: dict[str, object] = {}
    at = 0
    for name in names:
        size = 4 * int(np.prod(tensors[name]))
        header[name] = {
            "dtype": "F32",
            "shape": list(tensors[name]),
            "data_offsets": [at, at + size],
        }
        at += size
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for name in names:
            values = make(name, tensors[name]).astype("<f4", copy=False)
            file.write(values.tobytes())
            done(values.nbytes)


def write_language_model(
    directory: Path,
    sizes: Sizes,
    seed: int,
    done: Done = _nothing,
) -> None:
    """Write the language model, its configuration and tokenizer."""
    for file, tensors in language_model_files(sizes).items():
        write_tensors(directory / file, tensors, partial(make_tensor, seed, file), done)
    config: dict[str, object] = {
        "architectures": ["LlamaModel"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.intermediate,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.heads,
        "max_position_embeddings": sizes.positions,
        "rms_norm_eps": sizes.rms_norm_eps,
        "rope_theta": sizes.rope_theta,
        "num_audio_tokens": sizes.code_vocab,
        "num_text_tokens": sizes.text_vocab,
        "num_vq": sizes.codebooks,
        "vocab_size": language_model_files(sizes)[layout.GPT]["embed_tokens.weight"][0],
        "torch_dtype": "float32",
        "use_cache": False,
    }
    if sizes != FULL:
        config[layout.CODEC_SIZES] = SMALL_CODEC
    (directory / layout.GPT_CONFIG).write_text(json.dumps(config, indent=1) + "\n")
    write_tokenizer((directory / layout.TOKENIZER).parent, sizes.text_vocab)


def codec_files(sizes: Sizes) -> dict[str, dict[str, Shape]]:
    """Tensor files of the codec: path -> name -> shape."""
    from engine.codec.config import released_config
    from engine.codec.names import known_tensors

    other: dict[str, Any] = {} if sizes == FULL else dict(SMALL_CODEC)
    config = released_config(gpt_hidden=sizes.hidden, **other)
    return {file: known_tensors(config, part) for file, part in layout.CODEC_FILES.items()}


def write_codec(directory: Path, sizes: Sizes, seed: int, done: Done = _nothing) -> None:
    """Write the codec's three files; windows and filter banks in them are the true ones."""
    import torch

    from engine.codec.config import MelConfig
    from engine.codec.mel import filter_bank

    constants = {
        "window": torch.hann_window(MelConfig().n_fft).numpy(),
        "fb": filter_bank(MelConfig()).numpy(),
    }

    def make(file: str, name: str, shape: Shape) -> npt.NDArray[np.float32]:
        constant = constants.get(name.rpartition(".")[2])
        return make_tensor(seed, file, name, shape) if constant is None else constant

    for file, tensors in codec_files(sizes).items():
        write_tensors(directory / file, tensors, partial(make, file), done)


def write_release(directory: Path, sizes: Sizes, seed: int, done: Done = _nothing) -> None:
    """Write a whole release."""
    write_language_model(directory, sizes, seed, done)
    write_codec(directory, sizes, seed, done)


def release_bytes(sizes: Sizes) -> int:
    """Bytes of all tensors of a release."""
    files = language_model_files(sizes) | codec_files(sizes)
    return sum(4 * int(np.prod(shape)) for tensors in files.values() for shape in tensors.values())


def main() -> None:
    from rich.progress import DownloadColumn, Progress

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--size", choices=("small", "full"), default="full")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    sizes = FULL if arguments.size == "full" else SMALL
    with Progress(*Progress.get_default_columns(), DownloadColumn()) as progress:
        task = progress.add_task(f"writing {arguments.directory}", total=release_bytes(sizes))
        write_release(
            arguments.directory, sizes, arguments.seed, lambda n: progress.advance(task, n)
        )


if __name__ == "__main__":
    main()
