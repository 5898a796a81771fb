"""The work of batch jobs: queued tasks are spoken when nobody listens live, results are told."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from pydantic import Field

from gateway.containers import wav_header
from gateway.door import Door
from gateway.http.jobstore import JobStore, StoreError, Task
from gateway.http.native import TtsBody, error_body, wish_of
from gateway.http.sound import NATIVE, Sound, pcm
from gateway.http.speech import UNAVAILABLE, speak, status_of
from gateway.link import GatewayError
from gateway.protocol import TurnDone

_log = logging.getLogger("voxgate.jobs")
_T = TypeVar("_T")
_AT_ONCE = 4
_WAIT_SECONDS = 1.0
_SWEEP_SECONDS = 60.0
_STORE_SECONDS = 2.0
"""Between two looks whether a full disk has room again."""


def state_folder() -> Path:
    """Where this user's programs keep what is to outlive them."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "voxgate"


class BatchTask(TtsBody):
    """One text. `id` comes back in the status."""

    id: str | None = Field(default=None, max_length=128)


class Jobs:
    """Works on the tasks of a store until it is closed. Tasks cut off by that are queued again."""

    def __init__(self, door: Door, clock: Callable[[], float] = time.time) -> None:
        self._door = door
        self._clock = clock
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._own: Path | None = None
        """A folder that was not configured; it stays only while there are jobs in it."""
        self.store: JobStore
        self._tasks: list[asyncio.Task[None]] = []
        self._running: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._queued = asyncio.Event()
        self._listeners: dict[str, set[asyncio.Event]] = defaultdict(set)

    async def start(self) -> None:
        """Raises `OSError` when the folder cannot be used."""
        folder = self._door.settings.jobs_dir
        self.store = JobStore(Path(folder)) if folder else self._own_store()
        self._queued.set()
        self._tasks = [asyncio.create_task(self._work()) for _ in range(_AT_ONCE)]
        self._tasks.append(asyncio.create_task(self._sweep()))

    def _own_store(self) -> JobStore:
        """Where nothing was configured: that of this address, which no other server has meanwhile.
        Without an address or a home, one that ends with this process."""
        settings = self._door.settings
        if settings.port:
            folder = state_folder() / f"jobs-{settings.host.replace(':', '_')}-{settings.port}"
            try:
                store = JobStore(folder)
            except OSError as failure:
                _log.info("%s: %s; batch jobs end with this process", folder, failure)
            else:
                self._own = folder
                return store
        self._temporary = tempfile.TemporaryDirectory(prefix="voxgate-jobs-")
        return JobStore(Path(self._temporary.name))

    async def stop(self) -> None:
        """Work no more. What was begun is queued again."""
        tasks = [*self._tasks, *self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # A thread may still be taking a task for a worker that is gone.
        if tasks:
            with contextlib.suppress(StoreError):
                self.store.release()

    async def close(self) -> None:
        await self.stop()
        if self._tasks:
            used = self.store.any_jobs()
            self.store.close()
            if self._own is not None and not used:
                shutil.rmtree(self._own, ignore_errors=True)
        if self._temporary is not None:
            self._temporary.cleanup()

    def added(self) -> None:
        """There are queued tasks."""
        self._queued.set()

    def delete(self, job: str) -> bool:
        """Forget a job, whatever it does. Returns whether there was one."""
        gone = self.store.delete(job)
        for (of, _), task in list(self._running.items()):
            if of == job:
                task.cancel()
        self._tell(job)
        return gone

    async def changes(self, job: str) -> AsyncGenerator[None, None]:
        """Once at first, then whenever a task of the job changed."""
        changed = asyncio.Event()
        self._listeners[job].add(changed)
        try:
            while True:
                yield
                await changed.wait()
                changed.clear()
        finally:
            self._listeners[job].discard(changed)
            if not self._listeners[job]:
                del self._listeners[job]

    def _tell(self, job: str) -> None:
        for changed in self._listeners.get(job, ()):
            changed.set()

    async def _work(self) -> None:
        while True:
            await self._queued.wait()
            taken = await self._stored(self.store.take)
            if taken is None:
                self._queued.clear()
                continue
            task, owner, media_type = taken
            key = (task.job, task.number)
            self._tell(task.job)
            self._running[key] = asyncio.create_task(self._finish(task, owner, media_type))
            try:
                await asyncio.wait((self._running[key],))
            finally:
                del self._running[key]

    async def _finish(self, task: Task, owner: str, media_type: str) -> None:
        store = self.store
        try:
            audio, ms = await self._speak(task, owner, NATIVE[media_type])
        except GatewayError as failure:
            if status_of(failure.code) == UNAVAILABLE or failure.code == "too_many_sessions":
                await self._stored(partial(store.put_back, task))
                await asyncio.sleep((failure.retry_after_ms or 0) / 1000 or _WAIT_SECONDS)
                self._queued.set()
            else:
                await self._stored(partial(store.failed, task, error_body(failure), self._clock()))
        except asyncio.CancelledError:
            # If that cannot be written, the next process queues it again.
            with contextlib.suppress(StoreError):
                store.put_back(task)
            raise
        except Exception:
            _log.exception("job %s: task %d failed", task.job, task.number)
            error = error_body(GatewayError("internal", "A fault in the server."))
            await self._stored(partial(store.failed, task, error, self._clock()))
        else:
            await self._stored(partial(store.done, task, audio, ms, self._clock()))
        self._tell(task.job)

    async def _stored(self, write: Callable[[], _T]) -> _T:
        """What a store gives, as soon as its disk has room: what was spoken is not thrown away."""
        told = False
        while True:
            try:
                return await asyncio.to_thread(write)
            except StoreError as failure:
                if not told:
                    _log.error("jobs wait for room on their disk: %s", failure)
                told = True
                await asyncio.sleep(_STORE_SECONDS)

    async def _speak(self, task: Task, owner: str, sound: Sound) -> tuple[bytes, int]:
        """One whole file, and its length in milliseconds."""
        door = self._door
        body = BatchTask.model_validate(task.request)
        limit = door.settings.max_request_chars
        wish = replace(wish_of(body, door.voices, door.limits.styles, limit), pace="idle")
        whole = sound.media_type == "audio/wav"
        parts = speak(door, owner, body.text, wish, pcm("pcm") if whole else sound)
        audio, ms = bytearray(), 0
        async with contextlib.aclosing(parts):
            async for part in parts:
                if isinstance(part, bytes):
                    audio += part
                elif isinstance(part, TurnDone):
                    ms = part.ms
        head = wav_header(len(audio)) if whole else b""
        return head + bytes(audio), ms

    async def _sweep(self) -> None:
        while True:
            before = self._clock() - self._door.settings.jobs_keep_seconds
            for job in await self._stored(partial(self.store.expire, before)):
                self._tell(job)
            await asyncio.sleep(min(_SWEEP_SECONDS, self._door.settings.jobs_keep_seconds or 1.0))
