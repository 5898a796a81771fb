"""Pack a trained checkpoint folder into the form the engine loads as a package resource.

    python -m training.pack CHECKPOINT_FOLDER [--voice-out engine/voices/mini]
                                              [--recogniser-out training/resources]
                                              [--weights]

The folder is what training leaves: `config.json`, `lm_bf16.safetensors`,
`codec_decoder_fp16.safetensors`, `ctc_phoneme_fp16.safetensors`, `voices.json`,
`phoneme_vocab.json` and, of word times, `aligner.safetensors`. With `--weights` those weights that
are in it replace packed ones; all else stays. A language model of `training.language_model` or
`training.distil` is packed already and brings the shape it has, `lm_config.json`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.lm_config import LmConfig, llama_config

FORMAT = 1
_LM = "lm_bf16.safetensors"
_LM_SHAPE = "lm_config.json"
_CODEC = "codec_decoder_fp16.safetensors"
_ALIGNER = "aligner.safetensors"
_RECOGNISER = "ctc_phoneme_fp16.safetensors"
END_ID = 180
"""The padding id of training, never part of a prompt: it names the end of a piece."""
OVERRUN_ID = 199
"""The last text id, which training never used."""

# `pace` is frames a phoneme, measured over held-out sentences; else the reference's own is taken.
_VOICES: dict[str, dict[str, Any]] = {
    "heart": {
        "name": "Heart",
        "gender": "female",
        "languages": ["en"],
        "pace": {"en": 2.52},
        "description": "Warm American English.",
    },
    "jf_gongitsune": {
        "name": "Gongitsune",
        "gender": "female",
        "languages": ["zh", "en"],
        "pace": {"zh": 2.9},
        "description": "Bright storyteller; Mandarin first, English with an accent.",
    },
    "jm_kumo": {
        "name": "Kumo",
        "gender": "male",
        "languages": ["zh", "en"],
        "pace": {"zh": 2.48},
        "description": "Calm and low; Mandarin first, English with an accent.",
    },
}
_DEFAULT = {"en": "heart", "zh": "jf_gongitsune"}


def sampled_codebooks(config: Mapping[str, Any]) -> list[int]:
    """Codebooks whose codes carry sound the language model can predict: the first residual level
    of every group. Deeper levels are quantisation noise to it and stay at the code for zero."""
    fsq = config["codec"]["fsq"]
    return [group * fsq["residual"] for group in range(fsq["groups"])]


def pack_language_model(
    tensors: Mapping[str, torch.Tensor], config: Mapping[str, Any]
) -> dict[str, torch.Tensor]:
    """Drop what is never used: heads of unsampled codebooks, and their embedding tables but for
    the one row they are fixed at, kept as `emb_code_fixed.{i}` (hidden,).

    Raises `ValueError` when a codebook lacks its tensors.
    """
    fixed = config["codec"]["fsq"]["zero_residual_id"]
    sampled = sampled_codebooks(config)
    packed: dict[str, torch.Tensor] = {}
    for name, value in tensors.items():
        kind, _, rest = name.partition(".")
        if kind in ("emb_code", "head_code"):
            codebook = int(rest.split(".")[0])
            if codebook not in sampled:
                if kind == "emb_code":
                    packed[f"emb_code_fixed.{codebook}"] = value[fixed].to(torch.bfloat16).clone()
                continue
        packed[name] = value.to(torch.bfloat16).contiguous()
    codebooks = range(config["lm"]["codes_per_frame"])
    needed = {f"{kind}.{i}.weight" for kind in ("emb_code", "head_code") for i in sampled}
    needed |= {f"emb_code_fixed.{i}" for i in codebooks if i not in sampled}
    if missing := sorted(needed - packed.keys()):
        raise ValueError(f"the language model lacks {', '.join(missing)}")
    return packed


def language_model_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The `config.json` vLLM reads: a Llama body and the `voxgate` section."""
    lm = config["lm"]
    sampled = sampled_codebooks(config)
    fixed = config["codec"]["fsq"]["zero_residual_id"]
    return llama_config(
        LmConfig(
            family="mini",
            text_vocab=lm["text_vocab"],
            end_id=END_ID,
            overrun_id=OVERRUN_ID,
            codebooks=lm["codes_per_frame"],
            code_vocab=lm["code_vocab"],
            end_code=lm["eos"],
            sampled_codebooks=tuple(sampled),
            fixed_codes={i: fixed for i in range(lm["codes_per_frame"]) if i not in sampled},
        ),
        hidden_size=lm["d"],
        intermediate_size=lm["ff"],
        layers=lm["n"],
        heads=lm["heads"],
        kv_heads=lm.get("kv_heads"),
        max_positions=lm["maxlen"],
        rms_norm_eps=lm["rms_eps"],
        rope_theta=lm["theta"],
    )


def voice_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """`config.json` of the package: everything but the language model and the voices."""
    lm, tokens = config["lm"], config["lm"]["tokens"]
    sampling = lm["sampling"]
    return {
        "format": FORMAT,
        "sample_rate": config["sample_rate"],
        "tokens": {
            "start_text": tokens["stts"],
            "start_codes": tokens["ptts"],
            "first_speed": tokens["speed_base"],
            "speeds": tokens["speeds"],
        },
        "sampling": {
            "temperature": sampling["temperature"],
            "top_p": sampling["top_p"],
            "top_k": sampling["top_k"],
            "repetition_penalty": sampling["repetition_penalty"],
            "repetition_window": sampling["window"],
        },
        "mel": config["mel"],
        "codec": {k: v for k, v in config["codec"].items() if k != "params"},
    }


def pack_voices(voices: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """`voices.json`: who speaks, and the reference of each language, sampled codebooks only."""
    sampled = sampled_codebooks(config)
    packed: list[dict[str, Any]] = []
    for speaker, about in _VOICES.items():
        card = {name: value for name, value in about.items() if name != "pace"}
        prompts: dict[str, Any] = {}
        token = None
        for name, reference in voices.items():
            if name not in (speaker, f"{speaker}_{reference['lang']}"):
                continue
            token = reference["spk_token"]
            prompts[reference["lang"]] = {
                "text": reference["text"],
                "phonemes": reference["ph"],
                "speed": reference["sp"],
                "pace": about["pace"].get(reference["lang"])
                or round(len(reference["codes"]) / len(reference["ph"]), 2),
                "codes": [[row[i] for i in sampled] for row in reference["codes"]],
            }
        if token is None:
            raise ValueError(f"voices.json has no reference of {speaker}")
        packed.append({"id": speaker, **card, "speaker_token": token, "prompts": prompts})
    return {"default": _DEFAULT, "voices": packed}


def quantise(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Matrices to int8 with one fp16 scale per output channel; everything else stays fp16."""
    out: dict[str, torch.Tensor] = {}
    for name, value in tensors.items():
        if value.dim() < 2:
            out[name] = value.half().contiguous()
            continue
        flat = value.float().flatten(1)
        scale = (flat.abs().amax(1).clamp(min=1e-8) / 127).half()
        steps = (flat / scale.float()[:, None]).round().clamp(-127, 127)
        out[name] = steps.to(torch.int8).reshape(value.shape).contiguous()
        out[f"{name}.scale"] = scale
    return out


def _write_json(path: Path, value: Any, *, indent: int | None = 1) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    path.write_text(text + "\n", encoding="utf-8")


def pack_weights(source: Path, voice_out: Path, recogniser_out: Path) -> list[Path]:
    """Write those weights that `source` has. Returns the files written.

    Raises `FileNotFoundError` when it has none, or a language model without its shape.
    """
    written = []

    def write(
        name: str, path: Path, packed: Callable[[dict[str, Tensor]], dict[str, Tensor]]
    ) -> None:
        if (source / name).exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            save_file(packed(load_file(source / name)), path)
            written.append(path)

    if (source / _LM).exists():
        model, packed_shape = voice_out / "lm", source / _LM_SHAPE
        if packed_shape.exists():
            write(_LM, model / "model.safetensors", dict)
            shape = json.loads(packed_shape.read_text(encoding="utf-8"))
        else:
            whole = json.loads((source / "config.json").read_text(encoding="utf-8"))
            write(_LM, model / "model.safetensors", lambda t: pack_language_model(t, whole))
            shape = language_model_config(whole)
        _write_json(model / "config.json", shape)
        written.append(model / "config.json")
    write(_CODEC, voice_out / "codec.safetensors", _halved)
    write(_ALIGNER, voice_out / _ALIGNER, _halved)
    write(_RECOGNISER, recogniser_out / "recogniser.safetensors", quantise)
    if not written:
        raise FileNotFoundError(f"{source} has none of {_LM}, {_CODEC}, {_ALIGNER}, {_RECOGNISER}")
    return written


def _halved(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.half().contiguous() for name, value in tensors.items()}


def pack(source: Path, voice_out: Path, recogniser_out: Path) -> list[Path]:
    """Write the voice package and the evaluation recogniser. Returns the files written."""
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    voices = json.loads((source / "voices.json").read_text(encoding="utf-8"))
    alphabet = json.loads((source / "phoneme_vocab.json").read_text(encoding="utf-8"))["vocab"]
    voice_out.mkdir(parents=True, exist_ok=True)
    recogniser_out.mkdir(parents=True, exist_ok=True)

    for name in (_LM, _CODEC, _RECOGNISER):
        if not (source / name).exists():
            raise FileNotFoundError(f"{source} has no {name}")
    pack_weights(source, voice_out, recogniser_out)
    _write_json(voice_out / "config.json", voice_config(config))
    _write_json(voice_out / "voices.json", pack_voices(voices, config), indent=None)
    _write_json(voice_out / "phonemes.json", alphabet, indent=None)
    return sorted(p for d in (voice_out, recogniser_out) for p in d.rglob("*") if p.is_file())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path)
    root = Path(__file__).resolve().parent.parent
    parser.add_argument("--voice-out", type=Path, default=root / "engine" / "voices" / "mini")
    parser.add_argument("--recogniser-out", type=Path, default=root / "training" / "resources")
    parser.add_argument("--weights", action="store_true", help="only the weights that are there")
    options = parser.parse_args(arguments)
    packing = pack_weights if options.weights else pack
    for path in packing(options.checkpoint, options.voice_out, options.recogniser_out):
        print(f"{path.stat().st_size:>12,}  {path}")


if __name__ == "__main__":
    main()
