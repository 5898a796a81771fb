"""Runs the reference ChatTTS generation loop on request; a program of its own environment.

The loop is that of the PyPI package `chattts` 0.2.5 (AGPL-3.0+), installed apart and only imported
here: no part of it is in this repository. This file needs torch, transformers and safetensors, and
nothing of this project.

    python reference_worker.py --source DIR --release DIR [--device cuda] [--dtype bfloat16]

`--source` holds the package folder `ChatTTS`; `--release` is a checkpoint in the release layout.
One JSON object a line on standard input, one answer a line on standard output:

    {"streams": 16, "frames": 96, "prompt": 40, "repeat": 1}
    -> {"seconds": 3.1, "frames": 1536, "each_seconds": [3.1], "peak_bytes": 1234}

`repeat` runs the batch that many times, one after another, and times all of it.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import resource
import sys
import time
import types
from pathlib import Path
from typing import Any

END = 625
TEMPERATURE, TOP_P, TOP_K, PENALTY = 0.3, 0.7, 20, 1.05


def import_loop(source: Path) -> tuple[Any, Any, Any]:
    """The package's embed, gpt and processors modules, without what they do not need.

    Its own `__init__` imports audio and text packages the loop never touches, so the parent
    packages are entered as bare modules.
    """
    root = source / "ChatTTS"
    if not (root / "model" / "gpt.py").is_file():
        raise FileNotFoundError(f"{root} is not the package folder of chattts 0.2.5")
    for name, path in (
        ("ChatTTS", root),
        ("ChatTTS.model", root / "model"),
        ("ChatTTS.utils", root / "utils"),
    ):
        module = types.ModuleType(name)
        module.__path__ = [str(path)]
        sys.modules[name] = module
    files = importlib.import_module("ChatTTS.utils.io")
    utils: Any = sys.modules["ChatTTS.utils"]
    utils.del_all, utils.load_safetensors = files.del_all, files.load_safetensors
    return (
        importlib.import_module("ChatTTS.model.embed"),
        importlib.import_module("ChatTTS.model.gpt"),
        importlib.import_module("ChatTTS.model.processors"),
    )


class Reference:
    """The reference loop on one release directory."""

    def __init__(self, source: Path, release: Path, device: str, dtype: str) -> None:
        import torch

        embed_module, gpt_module, processors = import_loop(source)
        self._torch = torch
        self._device = torch.device(device)
        config = json.loads((release / "asset/gpt/config.json").read_text())
        sizes = {
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_attention_heads": 12,
            "num_hidden_layers": 20,
            "max_position_embeddings": 4096,
        }
        sizes = {name: config.get(name, default) for name, default in sizes.items()}
        codes, texts, codebooks = 626, config.get("num_text_tokens", 21178), 4
        embed = embed_module.Embed(sizes["hidden_size"], codes, texts, codebooks)
        embed.load_pretrained(str(release / "asset/Embed.safetensors"), device=self._device)
        self._embed = embed.to(self._device).eval()
        self._texts = texts
        gpt_config = {
            **sizes,
            "use_cache": False,
            "num_audio_tokens": codes,
            "num_text_tokens": texts,
            "num_vq": codebooks,
        }
        gpt = gpt_module.GPT(
            gpt_config, self._embed, device=self._device, device_gpt=self._device
        ).eval()
        gpt.load_pretrained(str(release / "asset/gpt"), str(release / "asset/Embed.safetensors"))
        gpt.gpt = gpt.gpt.to(self._device, getattr(torch, dtype)).eval()
        self._gpt = gpt
        warpers, penalties = processors.gen_logits(END, TOP_P, TOP_K, PENALTY)
        self._processors = (*penalties, *warpers)

    def run(self, streams: int, frames: int, prompt: int) -> float:
        """Seconds to generate `frames` frames for each of `streams` prompts of `prompt` ids."""
        torch = self._torch
        ids = torch.randint(0, self._texts, (streams, prompt, 1), device=self._device)
        ids = ids.expand(-1, -1, 4).contiguous()
        mask = torch.ones(streams, prompt, dtype=torch.bool, device=self._device)
        temperature = torch.full((4,), TEMPERATURE, device=self._device)
        self._wait()
        started = time.perf_counter()
        # Without `stream` the loop hands out its result once: its streaming would add a growing
        # copy of everything generated every 24 frames.
        for result in self._gpt.generate(
            self._embed(ids, mask),
            ids,
            temperature,
            END,
            mask,
            max_new_token=frames,
            min_new_token=frames,
            logits_processors=self._processors,
            return_hidden=True,
            show_tqdm=False,
        ):
            lengths = {len(codes) for codes in result.ids}
            if lengths != {frames}:
                raise RuntimeError(f"asked for {frames} frames a stream, got {lengths}")
        self._wait()
        return time.perf_counter() - started

    def peak_bytes(self) -> int:
        """Most memory held so far: on the GPU by tensors, on the CPU by this process."""
        if self._device.type == "cuda":
            return int(self._torch.cuda.max_memory_allocated())
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def _wait(self) -> None:
        if self._device.type == "cuda":
            self._torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--release", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int, default=0, help="0: as many as torch chooses")
    options = parser.parse_args()

    # The package logs to standard output, which carries the answers here.
    answers, sys.stdout = sys.stdout, sys.stderr
    import torch
    import transformers

    if options.threads:
        torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    reference = Reference(options.source, options.release, options.device, options.dtype)
    ready = {
        "ready": True,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "threads": torch.get_num_threads(),
        "dtype": options.dtype,
    }
    print(json.dumps(ready), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        streams, frames = request["streams"], request["frames"]
        each = [
            reference.run(streams, frames, request["prompt"])
            for _ in range(request.get("repeat", 1))
        ]
        answer = {
            "seconds": sum(each),
            "frames": streams * frames * len(each),
            "each_seconds": each,
            "peak_bytes": reference.peak_bytes(),
        }
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
