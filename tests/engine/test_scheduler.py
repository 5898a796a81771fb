"""Requests far ahead rest, on the real engine."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from engine.api import DRY, OFFLINE
from engine.checkpoints.base import CodeSampling
from engine.language_model import LanguageModel, LanguageModelSettings
from engine.lead import OFFLINE_SHARE

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]

SAMPLING = CodeSampling(
    temperature=1.0,
    top_p=0.9,
    top_k=20,
    repetition_penalty=1.0,
    repetition_window=1,
    min_frames=200,
    max_frames=200,
    seed=0,
)
SLOTS = 4
A_MINUTE_AHEAD = 60


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lm(random_model_dir: Path) -> AsyncIterator[LanguageModel]:
    lm = LanguageModel(
        LanguageModelSettings(
            random_model_dir,
            dtype="float32",
            block_size=32,
            max_num_seqs=SLOTS,
            max_model_len=512,
            cores=(max(os.sched_getaffinity(0)),),
            ring_rows=1 << 14,
            stream_interval=2,
        )
    )
    await lm.start()
    yield lm
    await lm.close()


class Reader:
    """Takes in one generation and counts its frames."""

    def __init__(self, lm: LanguageModel, priority: int, seed: int = 0) -> None:
        self.frames: list[np.ndarray] = []
        self.task = asyncio.create_task(self._read(lm, priority, seed))

    @property
    def count(self) -> int:
        return sum(map(len, self.frames))

    async def _read(self, lm: LanguageModel, priority: int, seed: int) -> None:
        sampling = replace(SAMPLING, seed=seed)
        async for batch in lm.generate(list(range(1, 20)), sampling, priority=priority):
            self.frames.append(batch.codes)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def far_ahead() -> int:
    return int((time.monotonic() + A_MINUTE_AHEAD) * 1000)


async def test_who_is_far_ahead_rests_for_a_newcomer_and_loses_nothing(lm: LanguageModel) -> None:
    alone = Reader(lm, DRY, seed=5)
    await alone.task
    rich = Reader(lm, far_ahead(), seed=5)
    await until(lambda: rich.count >= 5)
    new = Reader(lm, DRY, seed=6)
    await until(lambda: new.count >= 1)
    before = rich.count
    await until(lambda: new.count >= 15)
    assert rich.count - before <= 3, "frames of a request that should rest"
    await asyncio.gather(rich.task, new.task)
    assert np.array_equal(np.concatenate(rich.frames), np.concatenate(alone.frames))


async def test_offline_work_goes_slower_but_goes_on(lm: LanguageModel) -> None:
    offline = Reader(lm, OFFLINE)
    await until(lambda: offline.count >= 5)
    new = Reader(lm, DRY, seed=6)
    await until(lambda: new.count >= 1)
    before = offline.count
    await until(lambda: new.count >= 17)
    assert 0 < offline.count - before <= 16 // OFFLINE_SHARE + 2
    await asyncio.gather(offline.task, new.task)


async def test_resting_requests_keep_their_slots(lm: LanguageModel) -> None:
    rich = [Reader(lm, far_ahead(), seed) for seed in range(SLOTS)]
    await until(lambda: all(reader.count >= 3 for reader in rich))
    news = [Reader(lm, DRY, 10 + seed) for seed in range(SLOTS)]
    await asyncio.gather(*[reader.task for reader in (*rich, *news)])
    assert {reader.count for reader in (*rich, *news)} == {SAMPLING.max_frames}


async def test_thinner_messages_carry_every_frame_once(lm: LanguageModel) -> None:
    reader = Reader(lm, DRY, seed=9)
    await reader.task
    sizes = [len(codes) for codes in reader.frames]
    assert sum(sizes) == SAMPLING.max_frames
    assert sizes[0] == 1
    assert max(sizes) >= 2, "messages of several frames"
    frames = np.concatenate(reader.frames)
    repeated = (frames[1:] == frames[:-1]).all(1)
    assert not repeated.all()
    assert not any(np.array_equal(frames[i : i + 5], frames[i + 5 : i + 10]) for i in range(8))
