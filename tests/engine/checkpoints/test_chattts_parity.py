"""The whole language model on the real engine against the reference package, in float32.

Weights are made anew from the seed the golden files name; see make_golden.py.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import chattts_reference as reference
import cloudpickle
import numpy as np
import numpy.typing as npt
import pytest
import pytest_asyncio
import torch

from engine.checkpoints.base import CodeSampling
from engine.checkpoints.chattts import ChatTTSCheckpoint
from engine.checkpoints.random_release import FULL, SMALL, write_release
from engine.checkpoints.speaker_vectors import unit
from engine.language_model import LanguageModel, LanguageModelSettings

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]

# The engine process cannot import this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

LOGIT_TOLERANCE = 1e-4
CASES = ("plain", "speaker", "sample")
SIZES = {"small": SMALL, "full": FULL}

Spoken = tuple[npt.NDArray[np.int16], npt.NDArray[Any]]
"""Codes (frames, 4) and hidden states (frames, hidden)."""


def code_logits(worker: Any, hidden: list[list[float]]) -> list[list[float]]:
    """In the engine process: code logits (n, 4 * 626) of hidden states (n, hidden)."""
    logits: list[list[float]] = worker.model_runner.model.compute_logits(
        torch.tensor(hidden)
    ).tolist()
    return logits


def last_text_logits(worker: Any) -> list[float]:
    """In the engine process: text logits (text_vocab,) of the last step."""
    logits: list[float] = worker.model_runner.model.compute_text_logits()[-1].tolist()
    return logits


def greedy(frames: int, *, text: bool = False) -> CodeSampling:
    return CodeSampling(
        temperature=1e-6,
        top_p=0.7,
        top_k=20,
        repetition_penalty=1.0 if text else 1.05,
        repetition_window=16,
        min_frames=frames,
        max_frames=frames,
        seed=0,
        mode="text" if text else "code",
    )


@dataclass
class Running:
    """One release on the engine, and what the reference made of it."""

    lm: LanguageModel
    checkpoint: ChatTTSCheckpoint
    golden: dict[str, npt.NDArray[Any]]

    def prompt(self, case: str) -> list[int]:
        """The reference's prompt ids, its speaker and sample as registered rows."""
        ids = [int(token) for token in self.golden[f"{case}.text_ids"]]
        speaker_token = self.checkpoint.token("[spk_emb]")
        if speaker_token in ids:
            hidden = self.golden["plain.hidden"].shape[1]
            vector = unit(reference.speaker_vector(hidden))
            ids[ids.index(speaker_token)] = self.lm.register_speaker(vector)
        if case == "sample":
            ids += self.lm.register_frames(reference.reference_codes())
        return ids

    async def in_engine(self, function: Any, *arguments: Any) -> npt.NDArray[np.float32]:
        results = await self.lm._engine.llm.collective_rpc(function, args=arguments)
        return np.asarray(results[0], np.float32)


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=["small", "full"])
async def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Running]:
    size: str = request.param
    release = tmp_path_factory.mktemp(size)
    write_release(release, SIZES[size], reference.SEED)
    checkpoint = ChatTTSCheckpoint.load(release)
    lm = LanguageModel(
        LanguageModelSettings(
            model_dir=checkpoint.model_dir(),
            dtype="float32",
            max_num_seqs=4,
            max_model_len=512,
            ring_rows=1 << 14,
            hidden_ring_rows=1 << 14,
        )
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_ALLOW_INSECURE_SERIALIZATION", "1")
        try:
            await lm.start()
            yield Running(lm, checkpoint, reference.arrays(f"gpt_{size}"))
        finally:
            await lm.close()
            shutil.rmtree(release)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def spoken(running: Running) -> dict[str, Spoken]:
    """Frames and hidden states of every case, generated side by side."""

    async def generate(case: str) -> Spoken:
        batches = [
            batch
            async for batch in running.lm.generate(running.prompt(case), greedy(reference.FRAMES))
        ]
        hidden = [batch.hidden for batch in batches if batch.hidden is not None]
        return np.concatenate([batch.codes for batch in batches]), np.concatenate(hidden)

    return dict(zip(CASES, await asyncio.gather(*map(generate, CASES)), strict=True))


@pytest.mark.parametrize("case", CASES)
async def test_greedy_frames_and_logits_are_those_of_the_reference(
    running: Running,
    spoken: dict[str, Spoken],
    case: str,
    record_property: Callable[[str, object], None],
) -> None:
    golden = running.golden
    frames, hidden = spoken[case]
    assert frames.shape == (reference.FRAMES, 4)
    assert (frames == golden[f"{case}.generated"]).all()

    states = hidden[list(reference.LOGIT_STEPS)]
    states_off = np.abs(states - golden[f"{case}.hidden"]).max()
    logits = await running.in_engine(code_logits, states.tolist())
    logits_off = np.abs(logits.reshape(len(states), 4, -1) - golden[f"{case}.code_logits"]).max()
    record_property("hidden states differ by", states_off)
    record_property("code logits differ by", logits_off)
    assert states_off < LOGIT_TOLERANCE
    assert logits_off < LOGIT_TOLERANCE


async def test_refined_text_and_logits_are_those_of_the_reference(
    running: Running, record_property: Callable[[str, object], None]
) -> None:
    prompt, golden = running.prompt("refine"), running.golden
    wanted = golden["refine.generated"]
    ids = await running.lm.generate_text(prompt, greedy(reference.TEXT_STEPS, text=True))
    assert ids == wanted.tolist()

    for row, step in enumerate(reference.TEXT_LOGIT_STEPS):
        await running.lm.generate_text(prompt, greedy(step + 1, text=True))
        logits = await running.in_engine(last_text_logits)
        difference = logits[:: reference.TEXT_LOGIT_STRIDE] - golden["refine.text_logits"][row]
        logits_off = np.abs(difference).max()
        record_property(f"text logits of step {step} differ by", logits_off)
        assert logits_off < LOGIT_TOLERANCE
