"""Make the golden files of the language model with the reference package, outside the product.

The reference (PyPI `chattts` 0.2.5, AGPL-3.0+) is never installed beside the product: make an
environment of its own, then run this script in it:

    python3.11 -m venv ref
    ref/bin/pip install torch==2.13.0 transformers==5.19.0 safetensors pybase16384 tqdm
    ref/bin/pip install --no-deps chattts==0.2.5
    PYTHONPATH=. ref/bin/python tests/engine/checkpoints/make_golden.py

Weights are not stored: both sides make the same random release from a seed
(`engine.checkpoints.random_release`). Stored are the prompts, samples of the logits and hidden
states, the frames chosen greedily, and processed probabilities.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import importlib.util
import json
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

import numpy as np
import pybase16384
import torch
from chattts_reference import (
    FRAMES,
    GOLDEN,
    LOGIT_STEPS,
    REFERENCE_TEXT,
    REFINE_PROMPT,
    SAMPLING_CASES,
    SEED,
    TEXT_LOGIT_STEPS,
    TEXT_LOGIT_STRIDE,
    TEXT_STEPS,
    TEXTS,
    reference_codes,
    sampling_inputs,
    speaker_statistics,
    speaker_vector,
)

from engine.checkpoints.random_release import FULL, SMALL, Sizes, write_language_model


def reference_modules() -> types.SimpleNamespace:
    """The reference's modules, without its `__init__` files (they want audio libraries)."""
    spec = importlib.util.find_spec("ChatTTS")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the package chattts 0.2.5 is not on the path")
    root = spec.submodule_search_locations[0]
    for name in ("ChatTTS", "ChatTTS.model", "ChatTTS.utils", "ChatTTS.config"):
        module = types.ModuleType(name)
        module.__path__ = [str(Path(root, *name.split(".")[1:]))]
        sys.modules[name] = module
    io = importlib.import_module("ChatTTS.utils.io")
    for name in ("del_all", "load_safetensors", "FileLike"):
        setattr(sys.modules["ChatTTS.utils"], name, getattr(io, name))
    names = ("embed", "gpt", "processors", "speaker", "tokenizer")
    found = {name: importlib.import_module(f"ChatTTS.model.{name}") for name in names}
    found["config"] = importlib.import_module("ChatTTS.config.config")
    return types.SimpleNamespace(**found)


class Recorder:
    """A logits processor that keeps what passes and changes nothing."""

    def __init__(self) -> None:
        self.seen: list[np.ndarray] = []

    def __call__(self, _ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self.seen.append(scores.detach().float().numpy().copy())
        return scores


class Reference:
    """The reference's GPT, embedding, tokenizer and speaker on one release folder."""

    def __init__(self, ref: types.SimpleNamespace, release: Path, sizes: Sizes) -> None:
        self.ref = ref
        self.sizes = sizes
        config = dataclasses.asdict(ref.config.Config().gpt)
        config.update(
            hidden_size=sizes.hidden,
            intermediate_size=sizes.intermediate,
            num_attention_heads=sizes.heads,
            num_hidden_layers=sizes.layers,
            max_position_embeddings=sizes.positions,
            num_text_tokens=sizes.text_vocab,
        )
        device = torch.device("cpu")
        embed_file = str(release / "asset/Embed.safetensors")
        self.embed = ref.embed.Embed(
            sizes.hidden, sizes.code_vocab, sizes.text_vocab, sizes.codebooks
        )
        self.embed.load_pretrained(embed_file, device=device)
        self.embed.eval()
        self.gpt = ref.gpt.GPT(config, self.embed, device=device, device_gpt=device).eval()
        self.gpt.load_pretrained(str(release / "asset/gpt"), embed_file)
        self.gpt.prepare()
        self.tokenizer = ref.tokenizer.Tokenizer(str(release / "asset/tokenizer"))
        statistics = speaker_statistics(sizes.hidden).tobytes()
        self.speaker = ref.speaker.Speaker(
            sizes.hidden, pybase16384.encode_to_string(statistics), device
        )

    def run(
        self,
        prompt: str,
        *,
        speaker: np.ndarray | None = None,
        codes: np.ndarray | None = None,
        text_mode: bool = False,
    ) -> dict[str, np.ndarray]:
        """Generate greedily; the ids, raw logits and hidden states of it."""
        sample = None if codes is None else torch.from_numpy(codes.T.astype(np.int64))
        ids, attention, text_mask = self.tokenizer.encode([prompt], 4, prompt=sample)
        embedded = self.embed(ids, text_mask)
        if speaker is not None:
            self.speaker.apply(
                embedded,
                self.speaker._encode(torch.from_numpy(speaker)),
                ids,
                self.tokenizer.spk_emb_ids,
                torch.device("cpu"),
            )
        raw = Recorder()
        warpers, penalty = self.ref.processors.gen_logits(
            num_code=self.sizes.end_code if not text_mode else self.tokenizer.len,
            top_P=0.7,
            top_K=20,
            repetition_penalty=1.0 if text_mode else 1.05,
        )
        steps = TEXT_STEPS if text_mode else FRAMES
        result = next(
            self.gpt.generate(
                embedded,
                ids,
                temperature=torch.ones(1 if text_mode else 4),
                eos_token=self.tokenizer.eos_token if text_mode else self.sizes.end_code,
                attention_mask=attention,
                max_new_token=steps,
                min_new_token=steps,
                logits_processors=(raw, *penalty, *warpers),
                infer_text=text_mode,
                return_hidden=not text_mode,
                show_tqdm=False,
            )
        )
        text_length = int(text_mask.sum())
        found = {
            "text_ids": ids[0, :text_length, 0].numpy().astype(np.int32),
            "generated": result.ids[0].numpy().astype(np.int16),
        }
        if text_mode:
            found["text_logits"] = np.stack(
                [raw.seen[step][0, ::TEXT_LOGIT_STRIDE] for step in TEXT_LOGIT_STEPS]
            )
        else:
            found["code_logits"] = np.stack([raw.seen[step] for step in LOGIT_STEPS])
            found["hidden"] = result.hiddens[0].numpy()[list(LOGIT_STEPS)].astype(np.float32)
        return found


def language_model_golden(ref: types.SimpleNamespace, sizes: Sizes) -> dict[str, np.ndarray]:
    with tempfile.TemporaryDirectory() as folder:
        release = Path(folder)
        write_language_model(release, sizes, SEED)
        reference = Reference(ref, release, sizes)
        decorate = ref.speaker.Speaker
        speaker, codes = speaker_vector(sizes.hidden), reference_codes()
        plain = decorate.decorate_code_prompts([TEXTS["english"]], "[speed_5]", None, None)[0]
        spoken = decorate.decorate_code_prompts([TEXTS["mixed"]], "[speed_3]", None, "x")[0]
        sampled = decorate.decorate_code_prompts(
            [TEXTS["mandarin"]], "[speed_5]", REFERENCE_TEXT, "x"
        )[0]
        refine = decorate.decorate_text_prompts([TEXTS["mandarin"]], REFINE_PROMPT)[0]
        cases: dict[str, dict[str, Any]] = {
            "plain": {"prompt": plain},
            "speaker": {"prompt": spoken, "speaker": speaker},
            "sample": {"prompt": sampled, "speaker": speaker, "codes": codes},
            "refine": {"prompt": refine, "text_mode": True},
        }
        return {
            f"{case}.{name}": values
            for case, arguments in cases.items()
            for name, values in reference.run(**arguments).items()
        }


def sampling_golden(ref: types.SimpleNamespace) -> dict[str, np.ndarray]:
    found = {}
    for case, settings in enumerate(SAMPLING_CASES):
        logits, history = sampling_inputs(case)
        warpers, penalty = ref.processors.gen_logits(
            num_code=625,
            top_P=settings["top_p"],
            top_K=settings["top_k"],
            repetition_penalty=settings["repetition_penalty"],
        )
        scores = torch.from_numpy(logits.copy()) / settings["temperature"]
        for processor in (*penalty, *warpers):
            scores = processor(torch.from_numpy(history), scores)
        found[str(case)] = torch.softmax(scores, dim=-1).numpy()
    return found


def text_golden(ref: types.SimpleNamespace) -> dict[str, Any]:
    """Text forms of a speaker and of reference codes, and token ids of some texts."""
    with tempfile.TemporaryDirectory() as folder:
        write_language_model(Path(folder), SMALL, SEED)
        tokenizer = ref.tokenizer.Tokenizer(str(Path(folder, "asset/tokenizer")))
        tokens = {text: tokenizer.encode([text], 4)[0][0, :, 0].tolist() for text in TEXTS.values()}
    return {
        "speaker": ref.speaker.Speaker._encode(torch.from_numpy(speaker_vector(768))),
        "codes": ref.speaker.Speaker.encode_prompt(torch.from_numpy(reference_codes().T.copy())),
        "tokens": tokens,
    }


def main() -> None:
    torch.set_num_threads(2)
    torch.manual_seed(0)
    # The reference only draws; the most probable entry makes its loop greedy.
    torch.multinomial = lambda scores, **_: scores.argmax(-1, keepdim=True)
    ref = reference_modules()
    GOLDEN.mkdir(exist_ok=True)
    np.savez_compressed(GOLDEN / "sampling.npz", **sampling_golden(ref))
    write_json(GOLDEN / "texts.json", text_golden(ref))
    for name, sizes in (("small", SMALL), ("full", FULL)):
        np.savez_compressed(GOLDEN / f"gpt_{name}.npz", **language_model_golden(ref, sizes))
        print("made", name, flush=True)
    packages = ("torch", "transformers", "tokenizers", "numpy", "safetensors", "pybase16384")
    versions = {name: importlib.metadata.version(name) for name in packages}
    write_json(GOLDEN / "versions.json", {"chattts": "0.2.5", "seed": SEED, **versions})


def write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
