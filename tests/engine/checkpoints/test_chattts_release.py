"""Checking and opening a release: every fault named, in one message."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from engine.checkpoints.base import CheckpointError
from engine.checkpoints.chattts import ChatTTSCheckpoint
from engine.checkpoints.chattts_layout import RELEASE_FILES, Sizes, embed_tensors, gpt_tensors
from engine.checkpoints.random_release import SMALL, codec_files, main, write_release
from engine.lm_config import LmConfig


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("release")
    write_release(directory, SMALL, seed=1)
    return directory


@pytest.fixture
def release(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "release"))


def complaint(release: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        ChatTTSCheckpoint.load(release)
    return str(caught.value)


def test_an_empty_folder_lacks_every_file(tmp_path: Path) -> None:
    found = complaint(tmp_path)
    for file in RELEASE_FILES:
        assert f"{file} is missing" in found


def test_all_faults_are_named_at_once(release: Path) -> None:
    (release / "asset/DVAE.safetensors").unlink()
    (release / "asset/Vocos.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1")
    embed = release / "asset/Embed.safetensors"
    tensors = load_file(embed)
    del tensors["emb_code.1.weight"]
    tensors["emb_text.weight"] = tensors["emb_text.weight"][:100]
    tensors["head_code.3.parametrizations.weight.original0"] = np.ones((626, 1), np.int64)
    save_file(tensors, embed)
    decoder = release / "asset/Decoder.safetensors"
    tensors = load_file(decoder)
    tensors["coef"] = np.ones((1, 80, 1), np.float32)
    save_file(tensors, decoder)

    found = complaint(release)
    for wanted in (
        "asset/DVAE.safetensors is missing",
        "asset/Vocos.safetensors is no safetensors file or was cut short",
        "asset/Embed.safetensors: tensor emb_code.1.weight [626, 128] is missing",
        "tensor emb_text.weight has shape [100, 128], expected [4096, 128]",
        "tensor head_code.3.parametrizations.weight.original0 is I64, expected one of",
        "asset/Decoder.safetensors: coef has shape (1, 80, 1), expected (1, 100, 1)",
    ):
        assert wanted in found


def test_a_file_cut_short_is_noticed_from_its_header(release: Path) -> None:
    file = release / "asset/gpt/model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    assert "asset/gpt/model.safetensors was cut short" in complaint(release)


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0, a positive whole number"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"num_key_value_heads": 1}, "num_key_value_heads is 1"),
        ({"num_attention_heads": 3}, "no multiple of 3 heads"),
        ({"rms_norm_eps": "x"}, "rms_norm_eps is 'x'"),
        ({"num_text_tokens": 5000}, "tokenizer.json has 4096 tokens, the model 5000"),
        ({"voxgate_codec": {"colour": 1}}, "colour"),
    ],
)
def test_an_unusable_configuration_is_explained(
    release: Path, change: dict[str, object], wanted: str
) -> None:
    path = release / "asset/gpt/config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert wanted in complaint(release)


@pytest.mark.parametrize(
    ("file", "spoil", "wanted"),
    [
        ("asset/gpt/config.json", lambda _: "{", "asset/gpt/config.json: "),
        ("asset/gpt/config.json", lambda _: "[]", "must hold a JSON object"),
        ("asset/tokenizer/tokenizer.json", lambda _: "{}", "tokenizer.json: is no tokenizer"),
        (
            "asset/tokenizer/tokenizer.json",
            lambda text: text.replace("[uv_break]", "[pause]"),
            "lacks the tokens [uv_break]",
        ),
    ],
)
def test_damaged_text_files(
    release: Path, file: str, spoil: Callable[[str], str], wanted: str
) -> None:
    path = release / file
    path.write_text(spoil(path.read_text(encoding="utf-8")), encoding="utf-8")
    assert wanted in complaint(release)


def test_homophones_put_beside_the_weights_are_used(release: Path) -> None:
    path = release / "asset/homophones_map.json"
    path.write_text('{"粥": "周"}', encoding="utf-8")
    checkpoint = ChatTTSCheckpoint.load(release)
    assert checkpoint.token_ids("喝粥") == checkpoint.token_ids("喝周")
    path.write_text('{"粥": "稀饭"}', encoding="utf-8")
    assert "homophones_map.json must map characters to characters" in complaint(release)


def test_the_released_sizes_are_the_defaults() -> None:
    gpt, embed = gpt_tensors(Sizes()), embed_tensors(Sizes())
    assert len(gpt) == 20 * 9 + 1
    assert gpt["layers.19.mlp.down_proj.weight"] == (768, 3072)
    assert embed["emb_text.weight"] == (21178, 768)
    assert embed["head_code.3.parametrizations.weight.original1"] == (626, 768)
    full = codec_files(Sizes())
    assert full["asset/Decoder.safetensors"]["decoder.conv_in.0.weight"] == (128, 384, 3)


def test_the_model_directory_links_to_the_weights(good: Path) -> None:
    checkpoint = ChatTTSCheckpoint.load(good)
    folder = checkpoint.model_dir()
    links = {path.name: path.resolve() for path in folder.glob("*.safetensors")}
    assert set(links.values()) == {
        good.resolve() / "asset/gpt/model.safetensors",
        good.resolve() / "asset/Embed.safetensors",
    }
    assert all((folder / name).is_symlink() for name in links)
    config = json.loads((folder / "config.json").read_text())
    assert config["hidden_size"] == 128
    lm = LmConfig.from_dict(config["voxgate"], vocab_size=config["vocab_size"])
    assert lm.sampled_codebooks == (0, 1, 2, 3)
    assert lm.text_end_id == checkpoint.token("[Ebreak]")
    assert lm.keep_hidden
    codes = ChatTTSCheckpoint.load(good, decode_from="codes")
    config = json.loads((codes.model_dir() / "config.json").read_text())
    assert not config["voxgate"]["keep_hidden"]


def test_the_model_directory_goes_with_the_checkpoint(good: Path) -> None:
    checkpoint = ChatTTSCheckpoint.load(good)
    folder = checkpoint.model_dir()
    assert folder.is_dir()
    del checkpoint
    assert not folder.exists()


def test_both_decode_paths_and_the_encoder_are_loaded(good: Path) -> None:
    codec = ChatTTSCheckpoint.load(good).codec()
    rng = np.random.default_rng(0)
    from_hidden = codec.decode(rng.standard_normal((12, 128)).astype(np.float32))
    from_codes = codec.decode(rng.integers(0, 625, (12, 4)).astype(np.int16))
    assert len(from_hidden) == len(from_codes) > 11 * 512
    assert from_hidden.std() > 0
    assert from_codes.std() > 0
    codes = codec.encode(rng.standard_normal(24_000).astype(np.float32) / 10)
    assert codes.shape[1] == 4


def test_the_same_seed_writes_the_same_release(good: Path, tmp_path: Path) -> None:
    write_release(tmp_path, SMALL, seed=1)
    for file in RELEASE_FILES:
        assert (tmp_path / file).read_bytes() == (good / file).read_bytes()
    write_release(tmp_path, SMALL, seed=2)
    name = "asset/Embed.safetensors"
    assert (tmp_path / name).read_bytes() != (good / name).read_bytes()


def test_the_command_writes_a_release_that_loads(
    good: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["random_release", str(tmp_path), "--size", "small", "--seed", "1"]
    monkeypatch.setattr("sys.argv", arguments)
    main()
    assert "100%" in capsys.readouterr().out
    ChatTTSCheckpoint.load(tmp_path)
    name = "asset/gpt/model.safetensors"
    assert (tmp_path / name).read_bytes() == (good / name).read_bytes()
