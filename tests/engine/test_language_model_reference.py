"""The language model on the real engine against a plain Llama, position by position.

At a temperature of nearly zero every draw is the most likely one, so a loop over Hugging Face's
Llama says what each frame, hidden state and text id must be.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio
import torch
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaModel

from engine.checkpoints.base import CodeSampling
from engine.language_model import LanguageModel, LanguageModelSettings

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]

GREEDY = CodeSampling(
    temperature=1e-4,
    top_p=1.0,
    top_k=1,
    repetition_penalty=1.0,
    repetition_window=0,
    min_frames=40,
    max_frames=40,
    seed=0,
)
TEXT_END = 199


class PlainLlama:
    """The same checkpoint without vLLM: embeddings in, last hidden state out."""

    def __init__(self, folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        self.weights = load_file(folder / "model.safetensors")
        llama = LlamaModel(LlamaConfig(**config)).eval()
        own = {k: v for k, v in self.weights.items() if k.startswith(("layers.", "norm."))}
        missing, unexpected = llama.load_state_dict(own, strict=False)
        assert (missing, unexpected) == (["embed_tokens.weight"], [])
        self.llama = llama

    def text(self, token: int) -> torch.Tensor:
        return self.weights["emb_text.weight"][token]

    def frame(self, codes: list[int]) -> torch.Tensor:
        tables = [self.weights[f"emb_code.{i}.weight"][c] for i, c in enumerate(codes)]
        return torch.stack(tables).sum(0)

    @torch.inference_mode()
    def last_hidden(self, embeddings: list[torch.Tensor]) -> torch.Tensor:
        states: torch.Tensor = self.llama(
            inputs_embeds=torch.stack(embeddings)[None]
        ).last_hidden_state
        return states[0, -1]


@pytest.fixture(scope="module")
def folder(make_random_model: Callable[..., Path]) -> Path:
    return make_random_model(text_head=True, keep_hidden=True, sampled=(0, 1, 2, 3))


@pytest.fixture(scope="module")
def plain(folder: Path) -> PlainLlama:
    return PlainLlama(folder)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lm(folder: Path) -> AsyncIterator[LanguageModel]:
    lm = LanguageModel(
        LanguageModelSettings(
            folder,
            dtype="float32",
            max_num_seqs=4,
            max_model_len=512,
            kv_cache_bytes=1 << 25,
            cores=(max(os.sched_getaffinity(0)),),
            ring_rows=1 << 12,
        )
    )
    await lm.start()
    yield lm
    await lm.close()


async def test_frames_and_hidden_states_are_those_of_a_plain_llama(
    lm: LanguageModel, plain: PlainLlama
) -> None:
    rng = np.random.default_rng(0)
    reference = rng.integers(0, 625, (20, 4)).astype(np.int16)
    vector = rng.normal(size=128).astype(np.float32)
    prompt = [3, lm.register_speaker(vector), *lm.register_frames(reference), 17, 18]
    embeddings = [
        plain.text(3),
        torch.from_numpy(vector),
        *(plain.frame(codes) for codes in reference.tolist()),
        plain.text(17),
        plain.text(18),
    ]
    batches = [batch async for batch in lm.generate(prompt, GREEDY)]
    codes = np.concatenate([batch.codes for batch in batches])
    hidden = np.concatenate([batch.hidden for batch in batches if batch.hidden is not None])
    assert codes.shape == (40, 4)
    assert hidden.shape == (40, 128)
    for drawn, state in zip(codes.tolist(), hidden, strict=True):
        expected = plain.last_hidden(embeddings)
        np.testing.assert_allclose(state, expected.numpy(), atol=2e-4)
        logits = [plain.weights[f"head_code.{i}.weight"] @ expected for i in range(4)]
        assert drawn == [int(scores[:625].argmax()) for scores in logits]
        embeddings.append(plain.frame(drawn))


async def test_text_mode_reads_the_text_head(lm: LanguageModel, plain: PlainLlama) -> None:
    sampling = replace(GREEDY, mode="text", min_frames=30, max_frames=30)
    got = await lm.generate_text([4, 5, 6], sampling)
    embeddings = [plain.text(token) for token in (4, 5, 6)]
    expected = []
    for _ in range(30):
        scores = plain.weights["head_text.weight"] @ plain.last_hidden(embeddings)
        scores[TEXT_END] = -torch.inf
        expected.append(int(scores.argmax()))
        embeddings.append(plain.text(expected[-1]))
    assert got == expected


async def test_text_mode_ends_with_its_own_end(lm: LanguageModel) -> None:
    flat = replace(GREEDY, mode="text", temperature=30.0, top_k=200, min_frames=0, max_frames=480)
    lengths = [len(await lm.generate_text([4, 5], replace(flat, seed=seed))) for seed in range(6)]
    assert min(lengths) < 480
    ids = await lm.generate_text([4, 5], replace(flat, seed=int(np.argmin(lengths))))
    assert TEXT_END not in ids
    assert all(token < 200 for token in ids)


async def test_text_and_frames_share_a_batch(lm: LanguageModel) -> None:
    text = replace(GREEDY, mode="text", temperature=0.7, top_k=20, min_frames=60, max_frames=60)
    code = replace(GREEDY, temperature=0.7, top_k=20, min_frames=60, max_frames=60)

    async def frames(seed: int) -> list[list[int]]:
        batches = lm.generate([9, seed], replace(code, seed=seed))
        return [codes async for batch in batches for codes in batch.codes.tolist()]

    alone = [await lm.generate_text([9, 1], text), await frames(1), await frames(2)]
    together = await asyncio.gather(lm.generate_text([9, 1], text), frames(1), frames(2))
    assert list(together) == alone
