"""The language model on the real vLLM engine: caching, determinism, cancelling."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
import pytest_asyncio

from engine.api import SpeechError
from engine.checkpoints.base import Codes, CodeSampling
from engine.frames import FRAME_BASE
from engine.language_model import FrameBatch, LanguageModel, LanguageModelSettings

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]

BLOCK = 32
STREAMS = 12
FRAMES = 200
KV_BYTES_PER_BLOCK = BLOCK * 3 * 2 * 128 * 4
"""Of the random model: 3 layers, keys and values, 128 wide, float32."""

SAMPLING = CodeSampling(
    temperature=0.7,
    top_p=0.9,
    top_k=20,
    repetition_penalty=1.05,
    repetition_window=16,
    min_frames=FRAMES,
    max_frames=FRAMES,
    seed=0,
)


def settings(model_dir: Path) -> LanguageModelSettings:
    return LanguageModelSettings(
        model_dir,
        dtype="float32",
        block_size=BLOCK,
        max_num_seqs=16,
        max_model_len=512,
        kv_cache_bytes=400 * KV_BYTES_PER_BLOCK,
        cores=(max(os.sched_getaffinity(0)),),
        ring_rows=1 << 15,
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lm(random_model_dir: Path) -> AsyncIterator[LanguageModel]:
    lm = LanguageModel(settings(random_model_dir))
    await lm.start()
    yield lm
    await lm.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cramped(random_model_dir: Path) -> AsyncIterator[LanguageModel]:
    """Prompts arrive in chunks of at most 48 positions, and the cache holds about four streams."""
    lm = LanguageModel(
        replace(
            settings(random_model_dir),
            max_num_batched_tokens=48,
            kv_cache_bytes=34 * KV_BYTES_PER_BLOCK,
        )
    )
    await lm.start()
    yield lm
    await lm.close()


def reference_codes(seed: int, frames: int) -> Codes:
    codes = np.random.default_rng(seed).integers(0, 625, (frames, 4)).astype(np.int16)
    codes[:, [1, 3]] = 312
    return codes


@pytest.fixture(scope="module")
def voice(lm: LanguageModel) -> list[int]:
    """A speaker prompt of exactly four blocks."""
    return [3, *lm.register_frames(reference_codes(1, 4 * BLOCK - 1))]


def streams(voice: Sequence[int]) -> list[tuple[list[int], CodeSampling]]:
    """Pieces of different lengths and sampling in one voice."""
    return [
        (
            [*voice, *range(10, 12 + i)],
            replace(
                SAMPLING,
                seed=i,
                temperature=0.5 + i / 10,
                top_p=1 - i / 20,
                top_k=10 + 7 * i,
                repetition_penalty=1 + i / 50,
                repetition_window=16 - i,
            ),
        )
        for i in range(STREAMS)
    ]


async def collect(
    lm: LanguageModel, prompt: Sequence[int], sampling: CodeSampling
) -> tuple[Codes, FrameBatch]:
    """All frames of a generation and its last batch."""
    batches = [batch async for batch in lm.generate(prompt, sampling)]
    assert all(batch.finish is None for batch in batches[:-1])
    return np.concatenate([batch.codes for batch in batches]), batches[-1]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def alone(lm: LanguageModel, voice: list[int]) -> list[Codes]:
    """Every stream generated with nothing else running."""
    return [(await collect(lm, *stream))[0] for stream in streams(voice)]


async def test_frames_are_codes_with_the_fixed_codebooks_fixed(
    lm: LanguageModel, voice: list[int]
) -> None:
    ids: list[int] = []
    async for batch in lm.generate([*voice, 5], replace(SAMPLING, min_frames=20, max_frames=20)):
        assert batch.codes.dtype == np.int16
        assert batch.codes.shape == (len(batch.ids), 4)
        assert batch.hidden is None
        assert batch.prompt_tokens == len(voice) + 1
        ids += batch.ids
        last = batch
        assert ((batch.codes >= 0) & (batch.codes < 625)).all()
        assert (batch.codes[:, [1, 3]] == 312).all()
    assert len(ids) == 20
    assert all(i >= FRAME_BASE for i in ids)
    assert last.finish == "length"


async def test_the_model_may_end_a_piece_itself_but_not_before_the_minimum(
    lm: LanguageModel, voice: list[int]
) -> None:
    # Flat sampling draws the end with about one chance in 300 a frame.
    flat = replace(SAMPLING, temperature=30.0, top_p=1.0, top_k=626, min_frames=8, max_frames=380)
    finishes = []
    for seed in range(8):
        codes, last = await collect(lm, [*voice, 5], replace(flat, seed=seed))
        assert 8 <= len(codes) <= 380
        assert (len(codes) == 380) == (last.finish == "length")
        finishes.append(last.finish)
    assert "end" in finishes


async def test_every_full_block_of_a_warmed_voice_is_a_cache_hit(
    lm: LanguageModel, voice: list[int]
) -> None:
    short = replace(SAMPLING, min_frames=1, max_frames=1)
    await collect(lm, [*voice, 20], short)
    before = lm.stats()
    _, last = await collect(lm, [*voice, 21, 22], short)
    assert last.cached_tokens == len(voice) == 4 * BLOCK
    after = lm.stats()
    assert after.prefix_cache_queries - before.prefix_cache_queries == len(voice) + 2
    assert after.prefix_cache_hits - before.prefix_cache_hits == 4 * BLOCK


async def test_a_following_piece_finds_the_previous_ones_frames_cached(
    lm: LanguageModel, voice: list[int]
) -> None:
    first = [*voice, *range(30, 40)]
    ids = [i async for batch in lm.generate(first, SAMPLING) for i in batch.ids]
    follow = [*first, *ids, 41, 42]
    assert lm.alive(follow)
    _, last = await collect(lm, follow, replace(SAMPLING, min_frames=5, max_frames=5))
    # The last frame was never fed back, so its block is not complete in the cache.
    assert last.cached_tokens == (len(first) + FRAMES - 1) // BLOCK * BLOCK


async def test_two_voices_with_equal_text_share_nothing(lm: LanguageModel) -> None:
    text = list(range(50, 90))
    one = [3, *lm.register_frames(reference_codes(2, 95))]
    two = [3, *lm.register_frames(reference_codes(3, 95))]
    codes_one, _ = await collect(lm, [*one, *text], SAMPLING)
    codes_two, last = await collect(lm, [*two, *text], SAMPLING)
    assert last.cached_tokens == 0
    again_two, last = await collect(lm, [*two, *text], SAMPLING)
    assert last.cached_tokens >= 4 * BLOCK
    assert np.array_equal(codes_two, again_two)
    # Equal seeds give both the same noise, so some frames agree by themselves.
    assert (codes_one[:, [0, 2]] == codes_two[:, [0, 2]]).all(1).mean() < 0.5


async def test_speaker_vectors_are_voices_too(lm: LanguageModel) -> None:
    rng = np.random.default_rng(5)
    one, two = (lm.register_speaker(rng.normal(size=128).astype(np.float32)) for _ in range(2))
    codes_one, _ = await collect(lm, [4, one, 5, 6], SAMPLING)
    codes_two, _ = await collect(lm, [4, two, 5, 6], SAMPLING)
    again, _ = await collect(lm, [4, one, 5, 6], SAMPLING)
    assert np.array_equal(codes_one, again)
    assert not np.array_equal(codes_one, codes_two)


async def test_seeds_matter(lm: LanguageModel, voice: list[int]) -> None:
    one, _ = await collect(lm, [*voice, 5], SAMPLING)
    two, _ = await collect(lm, [*voice, 5], replace(SAMPLING, seed=1))
    assert (one == two).all(1).mean() < 0.5


async def test_a_batch_of_twelve_speaks_as_each_does_alone(
    lm: LanguageModel, voice: list[int], alone: list[Codes]
) -> None:
    together = await asyncio.gather(*(collect(lm, *stream) for stream in streams(voice)))
    for (codes, _), expected in zip(together, alone, strict=True):
        assert np.array_equal(codes, expected)


async def test_chunked_prompts_change_nothing(cramped: LanguageModel, alone: list[Codes]) -> None:
    # The voice has 128 positions: three steps of at most 48 whose draws are thrown away.
    voice = [3, *cramped.register_frames(reference_codes(1, 4 * BLOCK - 1))]
    for (prompt, sampling), expected in zip(streams(voice)[:3], alone, strict=False):
        codes, _ = await collect(cramped, prompt, sampling)
        assert np.array_equal(codes, expected)


async def test_preemption_changes_nothing(cramped: LanguageModel, alone: list[Codes]) -> None:
    voice = [3, *cramped.register_frames(reference_codes(1, 4 * BLOCK - 1))]
    before = cramped.stats().preemptions
    together = await asyncio.gather(*(collect(cramped, *stream) for stream in streams(voice)))
    assert cramped.stats().preemptions - before >= 10
    for (codes, _), expected in zip(together, alone, strict=True):
        assert np.array_equal(codes, expected)


async def test_cancelling_frees_the_slot_and_the_blocks_at_once(
    lm: LanguageModel, voice: list[int]
) -> None:
    patient = lm.generate([*voice, 5], replace(SAMPLING, min_frames=350, max_frames=350))
    for _ in range(5):
        await anext(patient)
    usage_of_one = lm.stats().kv_cache_usage
    doomed = lm.generate([*voice, *range(10, 190)], replace(SAMPLING, seed=7))
    for _ in range(20):
        await anext(doomed)
    while (await anext(patient)) and lm.stats().running < 2:
        pass
    usage_of_two = lm.stats().kv_cache_usage
    await doomed.aclose()
    frames = 0
    while lm.stats().running > 1:
        frames += len((await anext(patient)).ids)
    # One step may be under way, one more already on its way to us; the rest is slack for a busy
    # machine, far below the 180 frames it had left.
    assert frames <= 10
    assert lm.stats().kv_cache_usage < (usage_of_one + usage_of_two) / 2
    await patient.aclose()
    await quiet(lm)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(300):
        while not condition():
            await asyncio.sleep(0.001)


async def quiet(lm: LanguageModel) -> None:
    """Wait until the engine holds nothing."""

    def idle() -> bool:
        stats = lm.stats()
        return not (stats.running or stats.waiting or stats.kv_cache_usage)

    await until(idle)


async def test_a_cancelled_request_gives_its_slot_up_within_steps(
    lm: LanguageModel, voice: list[int]
) -> None:
    patient = lm.generate([*voice, 5], replace(SAMPLING, min_frames=380, max_frames=380))
    await anext(patient)
    before = lm.stats()
    for group in range(8):
        doomed = [
            lm.generate([*voice, 6, group], replace(SAMPLING, seed=seed)) for seed in range(10)
        ]
        for generation in doomed:
            await anext(generation)
        for generation in doomed:
            await generation.aclose()
            await anext(patient)
    await patient.aclose()
    await quiet(lm)
    after = lm.stats()
    counts = np.subtract(after.cancel_steps.counts, before.cancel_steps.counts)
    # The patient one is among them, with nothing left to follow it.
    assert counts.sum() == 81
    # A step of this model takes a millisecond, about what a message between the processes does.
    assert counts[:2].sum() >= 0.9 * 81, counts
    assert counts[:3].sum() >= 0.97 * 81, counts
    assert after.cancel_seconds.total - before.cancel_seconds.total > 0.0


async def test_requests_opened_and_aborted_leave_nothing(
    lm: LanguageModel, voice: list[int]
) -> None:
    async def open_and_abort(count: int) -> None:
        async def one(seed: int) -> None:
            generation = lm.generate([*voice, 5, seed % 100], replace(SAMPLING, seed=seed))
            for _ in range(1 + seed % 3):
                await anext(generation)
            await generation.aclose()

        for first in range(0, count, 20):
            await asyncio.gather(*(one(first + i) for i in range(20)))
        await quiet(lm)

    def memory() -> list[int]:
        parent = psutil.Process()
        return [process.memory_info().rss for process in [parent, *parent.children(recursive=True)]]

    # Until every block of the cache was used once, memory does grow.
    await open_and_abort(500)
    tasks = len(asyncio.all_tasks())
    grown = []
    for _ in range(3):
        before = memory()
        await open_and_abort(200)
        grown.append(max(np.subtract(memory(), before)))
    # A leak grows every time; the allocator's own arenas grow now and then.
    assert min(grown) < 4 << 20, grown
    assert len(asyncio.all_tasks()) == tasks
    codes, _ = await collect(lm, [*voice, 5], SAMPLING)
    assert len(codes) == FRAMES


async def test_cancelling_the_task_cancels_the_generation(
    lm: LanguageModel, voice: list[int]
) -> None:
    task = asyncio.create_task(collect(lm, [*voice, 5], SAMPLING))
    await until(lambda: lm.stats().running > 0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await quiet(lm)


async def test_prompts_that_cannot_be_served_say_why(lm: LanguageModel) -> None:
    with pytest.raises(SpeechError) as error:
        await collect(lm, [5] * 512, SAMPLING)
    assert error.value.code == "text_too_long"
    codes, last = await collect(lm, [5] * 500, SAMPLING)
    assert (len(codes), last.finish) == (12, "length")
