"""The voice speaks to itself as the engine would have it speak, and a cheaper model follows it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import engine.voices
from training import distil, own_speech
from training.language_model import Trainer
from training.lm_model import LanguageModel
from training.lm_sequences import Batch, Sentence, Sequences, Settings, Voiced

VOICE = Path(engine.voices.__file__).parent / "mini"
GREEDY = own_speech.Manner(1.0, 0.0, 1, 1.0)


@pytest.fixture(scope="module")
def voiced() -> Voiced:
    return Voiced.read(VOICE)


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return LanguageModel(VOICE / "lm", 0.0).eval()


def asked(voiced: Voiced, phonemes: str) -> own_speech.Prompted:
    head = voiced.layout.piece(voiced.alphabet.encode(phonemes), voiced.layout.speed(1.0))
    return own_speech.Prompted("t", "heart", "en", head, expected=4)


def test_what_is_drawn_with_the_cache_is_what_the_whole_sequence_says(
    voiced: Voiced, model: LanguageModel
) -> None:
    reference, held = own_speech.references(VOICE, voiced)["heart", "en"]
    # Unlike lengths in one batch: the shorter one is padded in front.
    prompts = [asked(voiced, "h\u02c8I."), asked(voiced, "j\u02c8\u025bs, \u02c8\u0259.")]
    speaker = own_speech.Speaker(model, longest=400, rows=2)
    torch.manual_seed(0)
    told = [(reference, held, voiced.speakers["heart"], prompt) for prompt in prompts]
    # Whether it ended is of no interest here: the ends are masked by asking for few frames.
    codes = speaker.drawn(told, GREEDY, seed=0)
    for prompt, own in zip(prompts, codes, strict=True):
        spoken = Sentence(
            "t",
            "heart",
            "en",
            np.array(prompt.head, np.int64),
            np.concatenate([reference.codes[:1], own[:8]]),
        )
        batch = Sequences([spoken], voiced, Settings()).pack([(True, [reference, spoken], held)])
        batch = batch.to(torch.device("cpu"))
        with torch.no_grad():
            hidden = model(batch.text, batch.codes, batch.frames)[0]
        first = 1 + reference.positions + held + len(prompt.head)
        said = torch.stack(
            [head(hidden[first : first + 8]) for head in model.head_code.values()], 1
        )
        said[:2, :, -1] = -torch.inf
        # Draws of equal chance may fall either way; greedy ones among the three best may not.
        best = said.topk(3, dim=-1).indices
        assert (best == torch.from_numpy(own[:8].astype(np.int64))[..., None]).any(-1).all()


def test_own_speech_comes_back_from_disk(tmp_path: Path) -> None:
    spoken = [
        Sentence(f"t{n}", "heart", "en", np.arange(n + 2), np.full((n + 1, 2), n, np.int16))
        for n in range(3)
    ]
    distil.save(tmp_path / "own.npz", spoken)
    again = distil.load(tmp_path / "own.npz")
    assert [s.text_id for s in again] == ["t0", "t1", "t2"]
    for one, other in zip(again, spoken, strict=True):
        np.testing.assert_array_equal(one.head, other.head)
        np.testing.assert_array_equal(one.codes, other.codes)


def test_fewer_heads_learn_what_the_voice_would_say(tmp_path: Path, voiced: Voiced) -> None:
    teacher = LanguageModel(VOICE / "lm", 0.0).eval().requires_grad_(False)
    known = own_speech.references(VOICE, voiced)
    reference, _ = known["heart", "en"]
    spoken = [replace(reference, text_id=f"t{n}") for n in range(3)]
    settings = Settings(
        positions=512, longest=512, dropout=0.0, noise=0.0, warm_up=1, kv_heads=1, rate=1e-3
    )
    device = torch.device("cpu")
    trainer = Trainer(spoken, tmp_path, VOICE, settings, device, references=known, teacher=teacher)
    assert trainer.model.layers[0].self_attn.k_proj.weight.shape == (64, 512)  # type: ignore[union-attr]
    batch = Batch(*next(iter(trainer.sequences)))
    apart = [float(trainer.train_step(batch, 0.0).mean()) for _ in range(4)]
    assert apart[-1] < apart[0]
    same = teacher.losses(batch.to(device), 0.0, teacher)
    torch.testing.assert_close(same, torch.zeros(2), atol=1e-5, rtol=0)
