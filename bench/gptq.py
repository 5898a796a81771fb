"""Int4 weights by GPTQ: rounded so that what a layer puts out for calibration data changes least.

    python -m bench.gptq bench/out/random-full int4-release --calibration 64
    python -m bench.gptq engine/voices/mini int4-voice --calibration 64

Writes a copy of a ChatTTS release or a packed voice whose linear weights lie on the grid that
`quantization="int4"` packs them to. Calibration sequences are what the language model itself sees:
a packed voice's prompts, which hold speech of its speakers; for a release, text and frames drawn at
random. GPTQ as published: per layer the Hessian of its inputs, columns rounded one after the other,
each error spread over the columns that follow.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from bench.texts import sentences
from engine.api import SpeechRequest
from engine.checkpoints import load_checkpoint
from engine.checkpoints.base import Checkpoint
from engine.checkpoints.mini import MiniCheckpoint
from engine.checkpoints.weights import canonical
from engine.frames import STATIC_BASE
from engine.lm_config import LmConfig
from engine.quantization import INT4_GROUP, is_linear, scales
from engine.settings import EngineSettings

_DAMP = 0.01
"""Of the Hessian's mean diagonal, added to it: inputs that were always nil have no curvature."""
_SEQUENCE = 192


def rounded_weight(weight: Tensor, hessian: Tensor) -> tuple[Tensor, Tensor]:
    """GPTQ of a weight (out, in) with the sum of outer products of its inputs (in, in): the weight
    on its grid, and the scales (out, in / group)."""
    exact = weight.double().clone()
    curvature = hessian.double().clone()
    dead = curvature.diagonal() == 0
    curvature[dead, dead] = 1.0
    exact[:, dead] = 0.0
    width = exact.shape[1]
    curvature += torch.eye(width) * (_DAMP * curvature.diagonal().mean())
    inverse = torch.linalg.cholesky(
        torch.cholesky_inverse(torch.linalg.cholesky(curvature)), upper=True
    )
    grid = torch.zeros_like(exact)
    steps: list[Tensor] = []
    for start in range(0, width, INT4_GROUP):
        # A group at a time, so that the columns after it are brought up to date in one product.
        end = min(start + INT4_GROUP, width)
        # From what the columns have become by now, not from what they were.
        steps.append(scales("int4", exact[:, start:end])[:, 0].double())
        errors = torch.zeros_like(exact[:, start:end])
        for at in range(start, end):
            column = exact[:, at]
            grid[:, at] = (column / steps[-1]).round().clamp(-7, 7) * steps[-1]
            error = errors[:, at - start] = (column - grid[:, at]) / inverse[at, at]
            exact[:, at + 1 : end] -= error[:, None] * inverse[at, at + 1 : end]
        exact[:, end:] -= errors @ inverse[start:end, end:]
    return grid.to(weight.dtype), torch.stack(steps, 1).to(torch.float32)


def llama_of(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> nn.Module:
    """A float32 Llama of these sizes with the layers among `tensors`."""
    from transformers import LlamaConfig, LlamaModel

    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    more = ("num_key_value_heads", "head_dim", "rope_theta", "rms_norm_eps")
    known = {name: config[name] for name in (*names, *more) if config.get(name) is not None}
    model = LlamaModel(LlamaConfig(**known, vocab_size=1, max_position_embeddings=4096))
    bare = {name.removeprefix("model."): tensor.float() for name, tensor in tensors.items()}
    layers = {name: t for name, t in bare.items() if name.startswith(("layers.", "norm."))}
    missing, _ = model.load_state_dict(layers, strict=False)
    if problems := [name for name in missing if name != "embed_tokens.weight"]:
        raise ValueError(f"the checkpoint lacks {problems[0]}")
    return model.eval()  # type: ignore[no-any-return]


def hessians(model: nn.Module, sequences: Iterator[Tensor]) -> dict[str, Tensor]:
    """Of every linear layer, by the name of its weight, from embeddings (positions, hidden)."""
    found: dict[str, Tensor] = {}
    hooks = []

    def watch(name: str) -> Any:
        def hook(_module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            seen = inputs[0].flatten(0, -2)
            product = seen.T @ seen
            found[name] = found[name] + product if name in found else product

        return hook

    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            hooks.append(module.register_forward_pre_hook(watch(f"{name}.weight")))
    with torch.inference_mode():
        for embeddings in sequences:
            model(inputs_embeds=embeddings[None])
    for hook in hooks:
        hook.remove()
    return found


class _Recorder:
    """Takes the place of an engine while a checkpoint registers its speakers' frames."""

    block_size = 32

    def __init__(self) -> None:
        self.frames: list[Any] = []

    def register_frames(self, codes: Any) -> list[int]:
        first = STATIC_BASE + len(self.frames)
        self.frames += list(codes)
        return list(range(first, first + len(codes)))

    def register_speaker(self, vector: Any) -> int:
        raise NotImplementedError("packed voices have frames, not vectors")

    def replace_speaker(self, token: int, vector: Any) -> int:
        raise NotImplementedError("packed voices have frames, not vectors")


def calibration(checkpoint: Checkpoint, model_dir: Path, count: int) -> Iterator[Tensor]:
    """`count` sequences of embeddings: a packed voice's prompts, which hold speech of its speakers;
    for a release, whose speakers have none, text and frames drawn at random."""
    config = json.loads((model_dir / "config.json").read_text())
    lm = LmConfig.from_dict(config["voxgate"], vocab_size=config["vocab_size"])
    tensors: dict[str, Tensor] = {}
    for path in sorted(model_dir.glob("*.safetensors")):
        tensors |= load_file(path)
    named = {name: tensor.float() for name, tensor in canonical(lm.family, tensors.items())}
    tables = [
        named[f"emb_code.{i}.weight"]
        if f"emb_code.{i}.weight" in named
        # Any code of a fixed codebook means the fixed one.
        else named[f"emb_code_fixed.{i}"].expand(lm.code_vocab, -1)
        for i in range(lm.codebooks)
    ]

    def embedded(words: Tensor, frames: Tensor) -> Tensor:
        codes = torch.stack([table[frames[:, i]] for i, table in enumerate(tables)]).sum(0)
        return torch.cat([named["emb_text.weight"][words], codes])

    if not isinstance(checkpoint, MiniCheckpoint):
        generator = torch.Generator().manual_seed(0)
        for _ in range(count):
            words = torch.randint(lm.text_vocab, (_SEQUENCE // 4,), generator=generator)
            shape = (_SEQUENCE - len(words), lm.codebooks)
            yield embedded(words, torch.randint(lm.code_vocab, shape, generator=generator))
        return
    recorder = _Recorder()
    checkpoint.register(recorder)
    texts = sentences("both", random.Random(5))
    for _ in range(count):
        plan = checkpoint.plan(SpeechRequest(text=next(texts), seed=0))
        parts = [
            embedded(torch.tensor([token]), torch.zeros(0, lm.codebooks, dtype=torch.int64))
            if token < STATIC_BASE
            else embedded(
                torch.zeros(0, dtype=torch.int64),
                torch.from_numpy(recorder.frames[token - STATIC_BASE]).long()[None],
            )
            for token in plan.prompt
        ]
        yield torch.cat(parts)


def quantise(checkpoint: Checkpoint, tensors: dict[str, Tensor], count: int) -> dict[str, Tensor]:
    """`tensors` with the linear weights on their grids, and their scales beside them."""
    model_dir = checkpoint.model_dir()
    model = llama_of(json.loads((model_dir / "config.json").read_text()), tensors)
    found = hessians(model, calibration(checkpoint, model_dir, count))
    result = dict(tensors)
    for name, tensor in tensors.items():
        if not is_linear(name):
            continue
        grid, steps = rounded_weight(tensor, found[name.removeprefix("model.")])
        result[name] = grid
        result[f"{name.removesuffix('.weight')}.weight_scale"] = steps
    return result


def lm_file(folder: Path) -> Path:
    """The language model's weights in a release or a packed voice. Raises `ValueError`."""
    for place in ("lm/model.safetensors", "asset/gpt/model.safetensors"):
        if (folder / place).is_file():
            return folder / place
    raise ValueError(f"{folder} is neither a packed voice nor a ChatTTS release")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.gptq", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--calibration", type=int, default=64, help="sequences")
    options = parser.parse_args(arguments)
    try:
        path = lm_file(options.source)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    checkpoint = load_checkpoint(EngineSettings(checkpoint=options.source))
    tensors = quantise(checkpoint, load_file(path), options.calibration)
    shutil.copytree(options.source, options.target, dirs_exist_ok=True)
    target = options.target / path.relative_to(options.source)
    target.unlink()
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, target)
    print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
