"""The language model when things go wrong: a ring too small, an engine process that dies."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
import pytest_asyncio

from engine.api import SpeechError
from engine.checkpoints.base import Codes, CodeSampling
from engine.language_model import LanguageModel, LanguageModelSettings

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]

ROWS = 512
SAMPLING = CodeSampling(
    temperature=0.7,
    top_p=0.9,
    top_k=20,
    repetition_penalty=1.05,
    repetition_window=16,
    min_frames=20,
    max_frames=20,
    seed=0,
)


def settings(model_dir: Path) -> LanguageModelSettings:
    return LanguageModelSettings(
        model_dir,
        dtype="float32",
        max_num_seqs=16,
        max_model_len=1024,
        kv_cache_bytes=1 << 25,
        cores=(max(os.sched_getaffinity(0)),),
        ring_rows=ROWS,
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lm(random_model_dir: Path) -> AsyncIterator[LanguageModel]:
    OTHERS.update(engine_processes())
    lm = LanguageModel(settings(random_model_dir))
    await lm.start()
    yield lm
    await lm.close()


async def collect(lm: LanguageModel, prompt: list[int], sampling: CodeSampling) -> Codes:
    return np.concatenate([batch.codes async for batch in lm.generate(prompt, sampling)])


OTHERS: set[psutil.Process] = set()
"""Engines that belong to tests elsewhere."""


def engine_processes() -> list[psutil.Process]:
    own = set(psutil.Process().children(recursive=True)) - OTHERS
    return [process for process in own if "EngineCore" in process.name()]


def shared_memory() -> list[str]:
    """The frame stores this process holds."""
    names = [os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return [name for name in names if "voxgate-frames" in name]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(300):
        while not condition():
            await asyncio.sleep(0.001)


async def test_a_ring_that_wraps_under_a_request_fails_that_one_alone(lm: LanguageModel) -> None:
    expected = [await collect(lm, [5, i], replace(SAMPLING, seed=i)) for i in range(8)]
    failures = []

    async def long() -> int:
        frames = 0
        endless = replace(SAMPLING, min_frames=900, max_frames=900)
        try:
            async for batch in lm.generate([5, 99], endless):
                frames += len(batch.ids)
        except SpeechError as error:
            failures.append(error)
        return frames

    async def short(seed: int, done: asyncio.Task[int]) -> None:
        sampling = replace(SAMPLING, seed=seed)
        while not done.done():
            assert np.array_equal(await collect(lm, [5, seed], sampling), expected[seed])

    task = asyncio.create_task(long())
    await asyncio.gather(*(short(seed, task) for seed in range(8)))
    frames = await task
    assert [error.code for error in failures] == ["frame_ring_overrun"]
    # It shared the ring with eight others, so it ended well before its own frames filled it.
    assert ROWS // 16 < frames < ROWS
    alone = await collect(lm, [5, 1], replace(SAMPLING, seed=1))
    assert np.array_equal(alone, expected[1])


async def test_a_request_alone_may_use_nearly_the_whole_ring(lm: LanguageModel) -> None:
    whole = replace(SAMPLING, min_frames=ROWS - 1, max_frames=ROWS - 1)
    assert len(await collect(lm, [5, 6], whole)) == ROWS - 1
    with pytest.raises(SpeechError) as error:
        await collect(lm, [5, 6], replace(whole, max_frames=ROWS + 20, min_frames=ROWS + 20))
    assert error.value.code == "frame_ring_overrun"


async def test_a_context_whose_frames_are_gone_is_refused(lm: LanguageModel) -> None:
    ids = [i async for batch in lm.generate([5, 7], SAMPLING) for i in batch.ids]
    follow = [5, 7, *ids, 8]
    assert lm.alive(follow)
    assert len(await collect(lm, follow, SAMPLING)) == 20
    for seed in range(ROWS // 20):
        await collect(lm, [5, seed], SAMPLING)
    assert not lm.alive(follow)
    with pytest.raises(SpeechError) as error:
        await collect(lm, follow, SAMPLING)
    assert error.value.code == "context_expired"


async def test_frames_read_too_late_are_an_error_not_anothers_audio(lm: LanguageModel) -> None:
    generation = lm.generate([5, 9], SAMPLING)
    await anext(generation)
    # The rest waits unread in its queue while the ring moves on.
    for seed in range(ROWS // 20 + 1):
        await collect(lm, [5, seed], SAMPLING)
    with pytest.raises(SpeechError) as error:
        async for _ in generation:
            pass
    assert error.value.code == "frame_ring_overrun"


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
async def test_what_the_process_group_gets_is_the_parents_business(
    lm: LanguageModel, sent: signal.Signals
) -> None:
    (engine,) = engine_processes()
    os.kill(engine.pid, sent)
    if engine.ppid() != os.getpid():
        os.kill(engine.ppid(), sent)
    assert len(await collect(lm, [5, 6], SAMPLING)) == 20
    assert lm.stats().state == "ready"


async def test_a_killed_engine_fails_what_is_pending_and_comes_back(lm: LanguageModel) -> None:
    voice = [3, *lm.register_frames(np.full((63, 4), 7, np.int16))]
    first = [batch async for batch in lm.generate([*voice, 5], SAMPLING)]
    restarts = lm.stats().restarts
    (engine,) = engine_processes()
    long = replace(SAMPLING, min_frames=450, max_frames=450)
    failed_at: list[float] = []

    async def pending(seed: int) -> None:
        with pytest.raises(SpeechError) as error:
            await collect(lm, [*voice, seed], replace(long, seed=seed))
        assert error.value.code == "engine_restarting"
        assert error.value.retryable
        failed_at.append(time.monotonic())

    # More than fit at once: those that wait for a slot must fail too.
    tasks = [asyncio.create_task(pending(seed)) for seed in range(20)]
    await until(lambda: lm.stats().running == 16)
    killed_at = time.monotonic()
    os.kill(engine.pid, signal.SIGKILL)
    await asyncio.gather(*tasks)
    assert max(failed_at) - killed_at < 2
    await until(lambda: lm.stats().state == "restarting")
    with pytest.raises(SpeechError) as error:
        await collect(lm, [*voice, 5], SAMPLING)
    assert error.value.code == "engine_restarting"

    await until(lambda: lm.stats().state == "ready")
    assert lm.stats().restarts == restarts + 1
    (fresh,) = engine_processes()
    assert fresh.pid != engine.pid
    # The registered voice is still there, and handles of the first life are not reused.
    generation = lm.generate([*voice, 5], SAMPLING)
    batches = [batch async for batch in generation]
    codes_before, codes = (np.concatenate([b.codes for b in run]) for run in (first, batches))
    assert np.array_equal(codes, codes_before)
    assert min(i for b in batches for i in b.ids) > max(i for b in first for i in b.ids)


async def test_a_hung_engine_is_killed_and_replaced(lm: LanguageModel) -> None:
    restarts = lm.stats().restarts
    (engine,) = engine_processes()
    tasks = [
        asyncio.create_task(
            collect(lm, [5, seed], replace(SAMPLING, min_frames=450, max_frames=450, seed=seed))
        )
        for seed in range(20)
    ]
    await until(lambda: lm.stats().running == 16)
    engine.suspend()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(result, SpeechError)
        assert result.code == "engine_restarting"
        assert result.retryable
    # vLLM may tell of the death before the supervision does: its state alone says nothing yet.
    await until(lambda: lm.stats().restarts == restarts + 1)
    assert lm.stats().state == "ready"
    assert not engine.is_running()
    assert len(await collect(lm, [5, 6], SAMPLING)) == 20


async def test_an_engine_whose_fork_server_dies_is_replaced_not_doubled(lm: LanguageModel) -> None:
    restarts = lm.stats().restarts
    (engine,) = engine_processes()
    server = engine.parent()
    assert server is not None
    server.kill()
    await until(lambda: lm.stats().restarts == restarts + 1)
    assert not engine.is_running()
    assert len(engine_processes()) == 1
    assert len(await collect(lm, [5, 6], SAMPLING)) == 20


async def test_a_cancelled_start_leaves_nothing(lm: LanguageModel, random_model_dir: Path) -> None:
    before = shared_memory()
    other = LanguageModel(settings(random_model_dir))
    with pytest.raises(SpeechError) as error:
        await collect(other, [5], SAMPLING)
    assert error.value.code == "engine_stopped"
    mine = {process.pid for process in engine_processes()}
    start = asyncio.create_task(other.start())
    await until(lambda: bool({process.pid for process in engine_processes()} - mine))
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    await other.close()
    await other.close()
    assert shared_memory() == before
    assert {process.pid for process in engine_processes()} == mine


async def test_a_killed_front_end_leaves_nothing(random_model_dir: Path) -> None:
    script = """
        import asyncio, os, signal, sys
        from pathlib import Path
        import psutil
        from engine.language_model import LanguageModel, LanguageModelSettings

        async def main():
            lm = LanguageModel(LanguageModelSettings(
                Path(sys.argv[1]), dtype="float32", kv_cache_bytes=1 << 24, ring_rows=64))
            await lm.start()
            for process in psutil.Process().children(recursive=True):
                print(process.pid)
            sys.stdout.flush()
            os.kill(os.getpid(), signal.SIGKILL)

        if __name__ == "__main__":
            asyncio.run(main())
    """
    program = random_model_dir / "killed.py"
    program.write_text(textwrap.dedent(script))
    shared = set(Path("/dev/shm").iterdir())
    # Not in pytest's own folder: the path of a socket has at most 107 characters.
    with tempfile.TemporaryDirectory() as folder:
        dying = await asyncio.create_subprocess_exec(
            sys.executable,
            program,
            random_model_dir,
            stdout=subprocess.PIPE,
            env=os.environ | {"TMPDIR": folder},
        )
        output, _ = await dying.communicate()
        assert dying.returncode == -signal.SIGKILL
        pids = [int(line) for line in output.split()]
        assert pids
        _, alive = psutil.wait_procs([psutil.Process(p) for p in pids if psutil.pid_exists(p)], 30)
        assert not alive
        # The compiler's cache is for the next start.
        assert [path.name for path in Path(folder).iterdir()] in ([], ["torchinductor_root"])
    # Names of others that use joblib come and go.
    new = {path.name for path in set(Path("/dev/shm").iterdir()) - shared if path.is_file()}
    assert not {name for name in new if not name.startswith("sem.loky-")}
