"""The language model that is trained is the packed one; what it learns is what will be drawn."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import engine.voices
from engine.checkpoints.mini import MiniCheckpoint
from training.audio_store import ShardWriter
from training.frame_store import SAMPLES_PER_FRAME
from training.language_model import Trainer
from training.lm_model import LanguageModel
from training.lm_sequences import IGNORED, Batch, Sentence, Sequences, Settings, Voiced, sentences
from training.onset import LEAD

VOICE = Path(engine.voices.__file__).parent / "mini"
LEAD_DRAWN = [LEAD[0], LEAD[2]]


@pytest.fixture(scope="module")
def voice() -> Voiced:
    return Voiced.read(VOICE)


@pytest.fixture
def audio(tmp_path: Path) -> Path:
    """Three utterances of 30 frames by a voice that is known and one by another."""
    folder = tmp_path / "audio"
    with ShardWriter(folder / "a") as shard:
        for number, name in enumerate(["heart", "heart", "heart", "nobody"]):
            shard.add(
                np.full(30 * SAMPLES_PER_FRAME, 0.1, np.float32),
                text_id=f"t{number}",
                voice=name,
                language="en",
                phonemes="h\u02c8I.",
                speed=2,
            )
    rows = np.arange(120)[:, None].repeat(4, 1).astype(np.int16)
    np.save(folder / "a.codes.npy", rows)
    return folder


def reference(voice: Voiced) -> Sentence:
    """What the embedded voice was given to speak after."""
    spoken = MiniCheckpoint.embedded().reference("heart", "en")
    codes = spoken.codes[:, voice.lm.sampled_codebooks]
    return Sentence("x", "heart", "en", np.array(spoken.head[1:], np.int64), codes)


def as_ids(batch: Batch) -> Batch:
    return batch.to(torch.device("cpu"))


def test_utterances_of_known_voices_begin_with_the_lead(audio: Path, voice: Voiced) -> None:
    found = sentences(audio, voice)
    assert [s.voice for s in found] == ["heart"] * 3
    assert found[1].codes[0].tolist() == LEAD_DRAWN
    assert found[1].codes[1].tolist() == [31, 31]


def test_a_folder_without_codes_is_refused(tmp_path: Path, voice: Voiced) -> None:
    with pytest.raises(FileNotFoundError, match="no encoded speech"):
        sentences(tmp_path, voice)


def test_what_follows_the_lead_is_learned_and_the_lead_is_not(audio: Path, voice: Voiced) -> None:
    spoken = sentences(audio, voice)
    batch = Sequences(spoken, voice, Settings()).pack([(True, spoken[:2], 5)])
    head = len(spoken[0].head)
    labels, frames = batch.labels[0].tolist(), batch.frames[0].tolist()
    first = 1 + head
    assert frames[first : first + 35] == [True] * 35
    assert labels[first - 1] == [IGNORED, IGNORED]
    assert labels[first] == spoken[0].codes[1].tolist()
    assert labels[first + 29] == [voice.lm.end_code] * 2
    assert labels[first + 30] == [IGNORED, IGNORED]
    assert batch.codes[0, first + 34].tolist() == spoken[0].codes[-1].tolist()
    assert batch.codes[0, first + 35 + head].tolist() == LEAD_DRAWN
    assert int(batch.text[0, 0]) == voice.speakers["heart"]


def test_batches_keep_to_their_size(audio: Path, voice: Voiced) -> None:
    settings = Settings(positions=2048)
    batches = iter(Sequences(sentences(audio, voice), voice, settings))
    for _ in range(3):
        text, codes, frames, labels = next(batches)
        assert text.numel() <= settings.positions
        assert codes.shape == labels.shape == (*frames.shape, 2)


def test_the_trained_model_is_the_packed_one(voice: Voiced) -> None:
    spoken = reference(voice)
    model = LanguageModel(VOICE / "lm", 0.0).eval()
    batch = as_ids(Sequences([spoken], voice, Settings()).pack([(True, [spoken], 0)]))
    with torch.no_grad():
        losses = model.losses(batch, noise=0.0)
    # Random weights, or a wrong layout, would score 6.4, the logarithm of the codebook's size.
    assert float(losses.max()) < 4.0
    assert set(model.state_dict()) == set(load_file(VOICE / "lm" / "model.safetensors"))


def test_a_run_learns_writes_and_resumes(audio: Path, tmp_path: Path, voice: Voiced) -> None:
    spoken = sentences(audio, voice)
    settings = Settings(positions=256, longest=256, dropout=0.0, noise=0.0, warm_up=1)
    device = torch.device("cpu")
    trainer = Trainer(spoken, tmp_path / "out", VOICE, settings, device)
    batch = Batch(*next(iter(trainer.sequences)))
    losses = [float(trainer.train_step(batch, 0.0).mean()) for _ in range(4)]
    assert losses[-1] < losses[0]
    trainer.save()
    written = load_file(tmp_path / "out" / "lm_bf16.safetensors")
    assert set(written) == set(load_file(VOICE / "lm" / "model.safetensors"))
    shape = json.loads((tmp_path / "out" / "lm_config.json").read_text())
    assert (
        shape["num_key_value_heads"]
        == trainer.model.layers[0].self_attn.k_proj.weight.shape[0] // 64
    )  # type: ignore[union-attr]
    again = Trainer(spoken, tmp_path / "out", VOICE, settings, device)
    assert again.step == 4
    torch.testing.assert_close(again.model.state_dict(), trainer.model.state_dict())
