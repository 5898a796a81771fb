"""Packing a trained checkpoint folder, on a small made-up one."""

# ruff: noqa: E501

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.lm_config import LmConfig
from training.pack import END_ID, OVERRUN_ID, main, quantise
from training.recogniser import dequantised

CONFIG: dict[str, Any] = {
    "sample_rate": 24000,
    "mel": {"n_mels": 100},
    "codec": {"lat": 8, "params": {"enc": 1}, "fsq": {"groups": 2, "residual": 2, "zero_residual_id": 312}},
    "lm": {
        "d": 4, "n": 1, "ff": 8, "heads": 1, "theta": 10000.0, "maxlen": 64, "rms_eps": 1e-5,
        "codes_per_frame": 4, "code_vocab": 626, "eos": 625, "text_vocab": 200,
        "tokens": {"stts": 178, "ptts": 179, "speed_base": 181, "speeds": [0.9, 1.0]},
        "sampling": {"temperature": 0.3, "top_p": 0.7, "top_k": 20, "repetition_penalty": 1.05, "window": 16},
    },
}  # fmt: skip


def reference(language: str, token: int) -> dict[str, Any]:
    return {"lang": language, "text": "hi", "ph": "hˈI.", "sp": 2, "spk_token": token,
            "codes": [[1, 2, 3, 4], [5, 6, 7, 8]]}  # fmt: skip


VOICES = {
    "heart": reference("en", 187),
    **{f"{v}_{lang}": reference(lang, t) for v, t in (("jm_kumo", 189), ("jf_gongitsune", 190)) for lang in ("en", "zh")},
}  # fmt: skip


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    folder = tmp_path / "trained"
    folder.mkdir()
    for name, content in (
        ("config", CONFIG),
        ("voices", VOICES),
        ("phoneme_vocab", {"vocab": {"h": 50}}),
    ):
        (folder / f"{name}.json").write_text(json.dumps(content))
    lm = {
        f"{kind}.{i}.weight": torch.randn(626, 4)
        for i in range(4)
        for kind in ("emb_code", "head_code")
    }
    save_file({**lm, "norm.weight": torch.ones(4)}, folder / "lm_bf16.safetensors")
    save_file({"dec.w": torch.ones(3)}, folder / "codec_decoder_fp16.safetensors")
    save_file(
        {"o.weight": torch.randn(5, 7), "o.bias": torch.randn(5)},
        folder / "ctc_phoneme_fp16.safetensors",
    )
    return folder


@pytest.fixture
def packed(trained: Path, tmp_path: Path) -> Path:
    out = tmp_path / "packed"
    main([str(trained), "--voice-out", str(out), "--recogniser-out", str(tmp_path / "judge")])
    return out


def test_codebooks_that_are_never_sampled_shrink_to_one_row(packed: Path, trained: Path) -> None:
    before = load_file(trained / "lm_bf16.safetensors")
    after = load_file(packed / "lm" / "model.safetensors")
    assert sorted(after) == [
        "emb_code.0.weight", "emb_code.2.weight", "emb_code_fixed.1", "emb_code_fixed.3",
        "head_code.0.weight", "head_code.2.weight", "norm.weight",
    ]  # fmt: skip
    assert torch.equal(
        after["emb_code_fixed.3"].float(), before["emb_code.3.weight"][312].bfloat16().float()
    )
    assert all(tensor.dtype is torch.bfloat16 for tensor in after.values())


def test_the_language_model_config_is_valid(packed: Path) -> None:
    config = json.loads((packed / "lm" / "config.json").read_text())
    lm = LmConfig.from_dict(config["voxgate"], vocab_size=config["vocab_size"])
    assert (lm.end_id, lm.overrun_id) == (END_ID, OVERRUN_ID)
    assert lm.fixed_codes == {1: 312, 3: 312}
    used = {178, 179, *range(181, 193)}
    assert not used & {lm.end_id, lm.overrun_id}


def test_references_keep_the_sampled_codes(packed: Path) -> None:
    voices = json.loads((packed / "voices.json").read_text())["voices"]
    assert [voice["id"] for voice in voices] == ["heart", "jf_gongitsune", "jm_kumo"]
    assert voices[0]["prompts"]["en"]["codes"] == [[1, 3], [5, 7]]
    assert set(voices[1]["prompts"]) == {"en", "zh"}


def test_a_missing_reference_is_named(trained: Path, tmp_path: Path) -> None:
    (trained / "voices.json").write_text(json.dumps({"heart": VOICES["heart"]}))
    with pytest.raises(ValueError, match="jf_gongitsune"):
        main(
            [
                str(trained),
                "--voice-out",
                str(tmp_path / "v"),
                "--recogniser-out",
                str(tmp_path / "r"),
            ]
        )


def test_weights_alone_replace_only_what_is_there(packed: Path, tmp_path: Path) -> None:
    before = {p.name: p.read_bytes() for p in packed.rglob("*") if p.is_file()}
    newer = tmp_path / "newer"
    newer.mkdir()
    save_file({"dec.w": torch.zeros(3)}, newer / "codec_decoder_fp16.safetensors")
    save_file({"out": torch.ones(2)}, newer / "aligner.safetensors")
    main([str(newer), "--weights", "--voice-out", str(packed), "--recogniser-out", str(tmp_path)])
    assert load_file(packed / "codec.safetensors")["dec.w"].sum() == 0
    assert (packed / "aligner.safetensors").exists()
    after = {p.name: p.read_bytes() for p in packed.rglob("*") if p.is_file()}
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == {"codec.safetensors", "aligner.safetensors"}
    assert not (tmp_path / "recogniser.safetensors").exists()


def test_a_trained_language_model_brings_its_shape(packed: Path, tmp_path: Path) -> None:
    newer = tmp_path / "newer"
    newer.mkdir()
    shape = json.loads((packed / "lm" / "config.json").read_text()) | {"num_key_value_heads": 2}
    (newer / "lm_config.json").write_text(json.dumps(shape))
    save_file({"norm.weight": torch.zeros(4)}, newer / "lm_bf16.safetensors")
    main([str(newer), "--weights", "--voice-out", str(packed), "--recogniser-out", str(tmp_path)])
    assert json.loads((packed / "lm" / "config.json").read_text()) == shape
    assert not load_file(packed / "lm" / "model.safetensors")["norm.weight"].any()


def test_a_language_model_without_its_shape_is_refused(packed: Path, tmp_path: Path) -> None:
    newer = tmp_path / "newer"
    newer.mkdir()
    save_file({"norm.weight": torch.zeros(4)}, newer / "lm_bf16.safetensors")
    before = (packed / "lm" / "model.safetensors").read_bytes()
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        main(
            [str(newer), "--weights", "--voice-out", str(packed), "--recogniser-out", str(tmp_path)]
        )
    assert (packed / "lm" / "model.safetensors").read_bytes() == before


def test_quantising_loses_less_than_half_a_step() -> None:
    torch.manual_seed(1)
    weights = {"a.weight": torch.randn(6, 10, 3) * torch.tensor([1e-3, 1, 5, 0, 9, 0.1])[:, None, None],
               "a.bias": torch.randn(6)}  # fmt: skip
    packed = quantise(weights)
    assert packed["a.weight"].dtype is torch.int8
    back = dequantised(packed)
    step = weights["a.weight"].abs().amax((1, 2)) / 127
    off = (back["a.weight"] - weights["a.weight"]).abs().amax((1, 2))
    # The scales are stored in fp16, so the last step may be off by a thousandth of the range.
    assert (off <= 0.5 * step + 1e-3 * weights["a.weight"].abs().amax((1, 2)) + 1e-7).all()
    assert torch.equal(back["a.bias"], weights["a.bias"].half().float())
