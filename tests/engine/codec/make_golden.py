"""Make golden/*.npz with the reference package, in its own environment (never the product's).

    python3.11 -m venv ref
    ref/bin/pip install torch==2.13.0 numpy scipy safetensors pybase16384
    ref/bin/pip install --no-deps torchaudio==2.11.1 vocos==0.1.0 einops einx frozendict loguru
    ref/bin/pip install --no-deps torch-einops-utils vector-quantize-pytorch==1.14.24
    rm ref/lib/python3.11/site-packages/torchaudio/lib/*.so   # want CUDA; its mel needs none
    ref/bin/pip download --no-deps --no-binary :all: chattts==0.2.5   # and unpack it
    ref/bin/python tests/engine/codec/make_golden.py --source chattts-0.2.5

Run it once with vector-quantize-pytorch 1.14.24 (what the released weights were trained with:
`trained`) and once with 1.32.0 (what pip resolves for chattts 0.2.5 today: `current`). The second
run adds the code paths only, because nothing else differs. Weights and inputs are drawn from the
seed by bench/codec_random.py; the files hold outputs, versions, sizes and the seed.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))

from bench.codec_random import (  # noqa: E402
    random_codes,
    random_hidden,
    random_pcm,
    random_tensor,
)

SEED = 20240528
SIZES: dict[str, dict[str, int]] = {
    "small": {
        "gpt_hidden": 64,
        "quantizer_dim": 96,
        "dvae_hidden": 40,
        "decoder_hidden": 56,
        "bottleneck": 24,
        "layers": 3,
        "vocoder_dim": 48,
        "vocoder_intermediate": 96,
        "vocoder_layers": 2,
    },
    "full": {
        "gpt_hidden": 768,
        "quantizer_dim": 1024,
        "dvae_hidden": 256,
        "decoder_hidden": 512,
        "bottleneck": 128,
        "layers": 12,
        "vocoder_dim": 512,
        "vocoder_intermediate": 1536,
        "vocoder_layers": 8,
    },
}
FRAMES = {"small": 24, "full": 12}
SAMPLES = {"small": 30_000, "full": 20_011}
NOT_WEIGHTS = ("window", "fb")


def import_reference(source: Path) -> tuple[Any, Any, Any]:
    """chattts' dvae module and vocos' modules, without the packages' heavy __init__."""
    encodec = types.ModuleType("encodec")
    encodec.EncodecModel = None  # type: ignore[attr-defined]
    sys.modules.setdefault("encodec", encodec)
    for name, folder in (("ChatTTS", "ChatTTS"), ("ChatTTS.model", "ChatTTS/model")):
        package = types.ModuleType(name)
        package.__path__ = [str(source / folder)]
        sys.modules[name] = package
    utils = types.ModuleType("ChatTTS.utils")
    utils.load_safetensors = None  # type: ignore[attr-defined]
    sys.modules["ChatTTS.utils"] = utils
    dvae = importlib.import_module("ChatTTS.model.dvae")
    return dvae, importlib.import_module("vocos.models"), importlib.import_module("vocos.heads")


def randomise(module: torch.nn.Module) -> list[str]:
    """Fill the weights from the seed; the names that hold weights."""
    names = []
    for name, tensor in module.state_dict().items():
        if name.rsplit(".", 1)[-1] in NOT_WEIGHTS:
            continue
        names.append(name)
        tensor.copy_(torch.from_numpy(random_tensor(name, tuple(tensor.shape), SEED)))
    return sorted(names)


def build(source: Path, size: dict[str, int]) -> tuple[Any, Any, Any]:
    """DVAE, Decoder and Vocos of the reference with these sizes and the seed's weights."""
    dvae_module, models, heads = import_reference(source)
    wide, narrow = size["quantizer_dim"] // 2, size["gpt_hidden"] // 2

    def stack(inputs: int, outputs: int, hidden: int) -> dict[str, int]:
        return {
            "idim": inputs,
            "odim": outputs,
            "hidden": hidden,
            "n_layer": size["layers"],
            "bn_dim": size["bottleneck"],
        }

    dvae = dvae_module.DVAE(
        decoder_config=stack(wide, wide, size["dvae_hidden"]),
        encoder_config=stack(wide, size["quantizer_dim"], size["dvae_hidden"]),
        vq_config={"dim": size["quantizer_dim"], "levels": (5, 5, 5, 5), "G": 2, "R": 2},
        dim=wide,
    )
    decoder = dvae_module.DVAE(
        decoder_config=stack(narrow, narrow, size["decoder_hidden"]), dim=narrow
    )
    backbone = models.VocosBackbone(
        100, size["vocoder_dim"], size["vocoder_intermediate"], size["vocoder_layers"]
    )
    head = heads.ISTFTHead(size["vocoder_dim"], n_fft=1024, hop_length=256, padding="center")
    vocos = torch.nn.ModuleDict({"backbone": backbone, "head": head})
    return dvae.eval(), decoder.eval(), vocos.eval()


@torch.inference_mode()
def outputs(source: Path, name: str, only_codes: bool) -> dict[str, np.ndarray]:
    size, frames = SIZES[name], FRAMES[name]
    dvae, decoder, vocos = build(source, size)
    names = {"dvae": randomise(dvae), "decoder": randomise(decoder), "vocos": randomise(vocos)}

    def speak(mel: torch.Tensor) -> np.ndarray:
        return vocos["head"](vocos["backbone"](mel)).numpy()[0]

    codes = torch.from_numpy(random_codes(frames, 4, 625, SEED).astype(np.int64))
    pcm = torch.from_numpy(random_pcm(SAMPLES[name], SEED))
    mel = dvae(codes.T[None], "decode")
    result = {
        "codes_mel": mel[0].T.numpy().copy(),
        "codes_wave": speak(mel),
        "encoded": dvae.sample_audio(pcm).T.numpy().astype(np.int16),
    }
    if only_codes:
        return result
    hidden = torch.from_numpy(random_hidden(frames, size["gpt_hidden"], SEED))
    mel = decoder(hidden.T[None], "decode")
    result |= {"hidden_mel": mel[0].T.numpy().copy(), "hidden_wave": speak(mel)}
    result["tensors"] = np.array(json.dumps(names))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=Path, required=True, help="unpacked chattts 0.2.5")
    source = parser.parse_args().source
    version = importlib.metadata.version("vector-quantize-pytorch")
    kind = "trained" if tuple(map(int, version.split(".")[:2])) < (1, 27) else "current"
    packages = ("torch", "torchaudio", "vocos", "vector-quantize-pytorch", "numpy")
    versions = {"chattts": "0.2.5"} | {p: importlib.metadata.version(p) for p in packages}
    for name, size in SIZES.items():
        about = {
            "seed": SEED,
            "versions": versions,
            "config": size | {"quantizer": kind},
            "frames": FRAMES[name],
            "samples": SAMPLES[name],
        }
        arrays = outputs(source, name, only_codes=kind == "current")
        path = HERE / "golden" / f"{name}_{kind}.npz"
        np.savez_compressed(path, about=np.array(json.dumps(about)), **arrays)
        print(path, path.stat().st_size)


if __name__ == "__main__":
    main()
