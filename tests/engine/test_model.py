"""The model's two ends: what a token id is embedded as, and how weights find their place."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import (
    cleanup_dist_env_and_memory,
    init_distributed_environment,
    initialize_model_parallel,
)
from vllm.engine.arg_utils import EngineArgs

from engine.checkpoints.base import CheckpointError
from engine.frames import (
    FRAME_BASE,
    PATH_VARIABLE,
    SPEAKER_BASE,
    STATIC_BASE,
    FrameStore,
    StoreShape,
)
from engine.lm_config import LmConfig
from engine.model import FrameTables, HandleEmbedding, VoxgateForCausalLM
from engine.plugin import register

CONFIG = LmConfig(family="mini", text_vocab=30, end_id=30, overrun_id=31)


@pytest.fixture
def store() -> Iterator[FrameStore]:
    shape = StoreShape(rows=16, codebooks=4, hidden_size=128, static_rows=40, speaker_rows=3)
    store = FrameStore.create(shape)
    yield store
    store.close()


def test_every_kind_of_id_is_embedded_from_its_own_table(store: FrameStore) -> None:
    tables = FrameTables(store, torch.device("cpu"))
    embedding = HandleEmbedding(CONFIG, 128, tables, torch.float32)
    torch.nn.init.normal_(embedding.text)
    torch.nn.init.normal_(embedding.code)
    # What comes after the model was made is seen as well: the tables are the shared memory itself.
    static = store.register_frames(np.array([[1, 2, 3, 4], [5, 6, 7, 8]], np.int16))
    speaker = store.register_speaker(np.full(128, 9, np.float32))
    serial = 16 * 5 + 3
    store.codes[3] = [600, 601, 602, 603]

    def frame(*codes: int) -> Tensor:
        return sum(
            (embedding.code[i * 626 + code] for i, code in enumerate(codes)), torch.zeros(128)
        )

    ids = [0, 29, static[1], FRAME_BASE + serial, speaker, 30, 31]
    expected = [
        embedding.text[0],
        embedding.text[29],
        frame(5, 6, 7, 8),
        frame(600, 601, 602, 603),
        torch.full((128,), 9.0),
        # The reserved ids are never wanted, only harmless.
        embedding.text[0],
        embedding.text[0],
    ]
    assert static[1] == STATIC_BASE + 1
    assert speaker == SPEAKER_BASE
    got = embedding(torch.tensor(ids, dtype=torch.int32))
    torch.testing.assert_close(got, torch.stack(expected))


@pytest.fixture(scope="module")
def vllm_config(random_model_dir: Path) -> Iterator[VllmConfig]:
    register()
    config = EngineArgs(
        model=str(random_model_dir), skip_tokenizer_init=True, dtype="float32", enforce_eager=True
    ).create_engine_config()
    with set_current_vllm_config(config):
        init_distributed_environment(1, 0, "tcp://127.0.0.1:0", backend="gloo")
        initialize_model_parallel()
        yield config
    cleanup_dist_env_and_memory()


@pytest.fixture
def model(
    vllm_config: VllmConfig, store: FrameStore, monkeypatch: pytest.MonkeyPatch
) -> VoxgateForCausalLM:
    monkeypatch.setitem(os.environ, PATH_VARIABLE, str(store.path))
    vllm_config.compilation_config.static_forward_context.clear()
    return VoxgateForCausalLM(vllm_config=vllm_config)


@pytest.fixture
def tensors(random_model_dir: Path) -> dict[str, Tensor]:
    return load_file(random_model_dir / "model.safetensors")


def test_weights_find_their_place(model: VoxgateForCausalLM, tensors: dict[str, Tensor]) -> None:
    loaded = model.load_weights(tensors.items())
    assert loaded == {name for name, _ in model.named_parameters()}
    embedding = model.model.embed_tokens
    assert torch.equal(embedding.text, tensors["emb_text.weight"])
    assert torch.equal(embedding.code[626:1252], tensors["emb_code.1.weight"])
    heads = [tensors[f"head_code.{i}.weight"] for i in (0, 2)]
    assert torch.equal(model.head_code.weight, torch.cat(heads))


def test_a_packed_checkpoint_needs_no_head_and_one_row_of_a_fixed_codebook(
    model: VoxgateForCausalLM, tensors: dict[str, Tensor]
) -> None:
    for i in (1, 3):
        del tensors[f"head_code.{i}.weight"]
        tensors[f"emb_code_fixed.{i}"] = tensors.pop(f"emb_code.{i}.weight")[312].clone()
    model.load_weights(tensors.items())
    code = model.model.embed_tokens.code
    assert torch.equal(code[626 + 312], tensors["emb_code_fixed.1"])
    assert torch.equal(code[626 + 5], tensors["emb_code_fixed.1"])


Breaking = Callable[[dict[str, Tensor]], object]


@pytest.mark.parametrize(
    ("breaking", "complaint"),
    [
        (lambda t: t.pop("emb_text.weight"), "emb_text.weight is missing"),
        (lambda t: t.pop("emb_code.1.weight"), "emb_code.1.weight is missing"),
        (lambda t: t.pop("head_code.2.weight"), "head_code.2.weight is missing"),
        (lambda t: t.pop("norm.weight"), "model.norm.weight is missing"),
        (
            lambda t: t.pop("layers.1.mlp.down_proj.weight"),
            "model.layers.1.mlp.down_proj.weight is missing",
        ),
        (
            lambda t: t.update({"head_code.0.weight": torch.zeros(625, 128)}),
            r"head_code.0.weight is \(625, 128\), expected \(626, 128\)",
        ),
    ],
)
def test_what_is_missing_or_misshapen_is_named(
    model: VoxgateForCausalLM, tensors: dict[str, Tensor], breaking: Breaking, complaint: str
) -> None:
    breaking(tensors)
    with pytest.raises(CheckpointError, match=complaint):
        model.load_weights(tensors.items())


def test_every_problem_is_named_at_once(
    model: VoxgateForCausalLM, tensors: dict[str, Tensor]
) -> None:
    del tensors["emb_text.weight"], tensors["head_code.0.weight"]
    with pytest.raises(CheckpointError) as error:
        model.load_weights(tensors.items())
    assert "emb_text.weight" in str(error.value)
    assert "head_code.0.weight" in str(error.value)


# -- configuration ---------------------------------------------------------------------------------


def test_the_configuration_survives_its_way_through_json() -> None:
    config = LmConfig(
        family="chattts",
        text_vocab=30,
        end_id=31,
        overrun_id=30,
        sampled_codebooks=(0, 2),
        fixed_codes={1: 312, 3: 0},
        text_head=True,
        text_end_id=29,
        keep_hidden=True,
    )
    assert LmConfig.from_dict(config.to_dict(), vocab_size=32) == config


def test_reserved_ids_default_to_those_after_the_text() -> None:
    config = LmConfig.from_dict({"family": "mini", "text_vocab": 30}, vocab_size=32)
    assert (config.end_id, config.overrun_id) == (30, 31)
    config = LmConfig.from_dict({"family": "mini", "text_vocab": 30, "end_id": 5}, vocab_size=30)
    assert (config.end_id, config.overrun_id) == (5, 6)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"family": "other"}, "family"),
        ({"sampled_codebooks": []}, "no codebook is sampled"),
        ({"sampled_codebooks": [0, 2]}, "either sampled or fixed"),
        ({"fixed_codes": {"0": 312}}, "either sampled or fixed"),
        ({"end_code": 626}, "end_code"),
        ({"text_vocab": 40}, "text_vocab"),
        ({"end_id": 31, "overrun_id": 31}, "overrun_id"),
        ({"overrun_id": 32}, "overrun_id"),
        ({"text_head": True}, "text_end_id"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(
    change: dict[str, object], complaint: str
) -> None:
    with pytest.raises(CheckpointError, match=complaint):
        LmConfig.from_dict({"family": "mini", "text_vocab": 30} | change, vocab_size=32)
