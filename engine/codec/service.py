"""The decode loop: one worker thread that owns the streaming decoder.

The event loop hands over frames and awaits PCM; what is waiting when the worker is free decodes in
one batch, up to a size that a newcomer can wait for.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from engine.api import Pcm
from engine.codec.config import CodecError
from engine.codec.model import Codec, Frames
from engine.codec.streaming import StreamingDecoder, StreamState

log = logging.getLogger(__name__)

DRY = float("-inf")
"""`due` of a stream whose listener hears nothing now."""
NO_HURRY = float("inf")

_RESTED_SECONDS = 0.05
_CPU_BATCH_FRAMES = 96
"""About 20 ms of work on one core."""
_CUDA_BATCH_FRAMES = 4096


@dataclass(slots=True, eq=False)
class _Job:
    state: StreamState
    frames: Frames
    last: bool
    due: float
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[Pcm]


@dataclass(slots=True)
class _Outcome:
    job: _Job
    pcm: Pcm | None = None
    error: BaseException | None = None

    def deliver(self) -> None:
        if self.job.done.done():
            return
        if self.pcm is not None:
            self.job.done.set_result(self.pcm)
        elif self.error is not None:
            self.job.done.set_exception(self.error)


class DecodeService:
    """Batched streaming decode off the event loop.

    threads: CPU threads of one decode (the whole process shares torch's thread count).
    decoder: one that was configured elsewhere; otherwise one with `look_ahead_frames`.
    """

    def __init__(
        self,
        codec: Codec,
        *,
        look_ahead_frames: int = 0,
        threads: int = 1,
        decoder: StreamingDecoder | None = None,
    ) -> None:
        self._decoder = decoder or StreamingDecoder(codec, look_ahead_frames)
        self._threads = threads
        self._batch_frames = _CPU_BATCH_FRAMES if codec.device.type == "cpu" else _CUDA_BATCH_FRAMES
        self._wake = threading.Condition()
        self._jobs: list[_Job] = []
        self._running: list[_Job] = []
        self._closing = False
        self._touch = False
        self._worked_at = 0.0
        self.seconds = 0.0
        """Spent decoding so far."""
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the worker; calls wait until it has warmed up."""
        if self._thread is not None:
            return
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="codec", daemon=True)
        self._thread.start()

    def expect(self) -> None:
        """Say that a decode will come soon: a worker that was idle for a while makes itself ready.

        The first decode after a tenth of a second of rest takes twice as long as the next.
        """
        with self._wake:
            if not self._jobs and time.monotonic() - self._worked_at > _RESTED_SECONDS:
                self._touch = True
                self._wake.notify()

    def open(self) -> StreamState:
        """A stream at its beginning; dropping the state is all it takes to end it early."""
        return self._decoder.open()

    async def decode(
        self, state: StreamState, frames: Frames, last: bool, due: float = NO_HURRY
    ) -> Pcm:
        """PCM (samples,) that `frames` (n, width) complete; calls of one state keep their order.

        due: when the listener runs dry, on any one clock; the earliest decode first, and those who
        are dry already (`DRY`) in a batch of their own. Cancelling the call ends the stream. Raises
        `CodecError`: `bad_frames`, `finished_stream`, `stopped`.
        """
        loop = asyncio.get_running_loop()
        job = _Job(state, frames, last, due, loop, loop.create_future())
        with self._wake:
            if self._thread is None or self._closing:
                raise CodecError("stopped", "the codec is not running")
            self._jobs.append(job)
            self._wake.notify()
        try:
            return await job.done
        except asyncio.CancelledError:
            self.drop(state)
            raise

    def drop(self, state: StreamState) -> None:
        """End a stream: its calls are cancelled, what has not begun is not decoded."""
        with self._wake:
            gone = [job for job in (*self._jobs, *self._running) if job.state is state]
            self._jobs = [job for job in self._jobs if job.state is not state]
        state.finished = True
        for job in gone:
            job.done.cancel()

    async def close(self) -> None:
        """Stop the worker; calls that wait raise `CodecError("stopped")`."""
        with self._wake:
            self._closing = True
            self._wake.notify()
            thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.to_thread(thread.join)

    @property
    def pending(self) -> int:
        """Calls that wait for the worker."""
        return len(self._jobs)

    def _run(self) -> None:
        torch.set_num_threads(self._threads)
        try:
            self._decoder.warm()
        except Exception:
            # Whoever decodes first gets the same error; the loop must be there to say so.
            log.exception("the codec could not warm up")
        while (batch := self._next()) is not None:
            if batch:
                began = time.perf_counter()
                outcomes = self._decode(batch)
                self.seconds += time.perf_counter() - began
                self._deliver(outcomes)
            else:
                self._decoder.touch()
            self._worked_at = time.monotonic()
        with self._wake:
            left, self._jobs = self._jobs, []
        stopped = CodecError("stopped", "the codec has stopped")
        self._deliver([_Outcome(job, error=stopped) for job in left])

    def _next(self) -> list[_Job] | None:
        """Wait for work: of all streams' first waiting calls those that are dry, else the earliest
        due that fit in one batch. Empty: there is nothing to decode, but there soon will be."""
        with self._wake:
            while not self._jobs and not self._touch and not self._closing:
                self._wake.wait()
            if self._closing:
                return None
            self._touch = False
            first: dict[int, _Job] = {}
            for job in self._jobs:
                first.setdefault(id(job.state), job)
            heads = list(first.values())
            chosen = [job for job in heads if job.due == DRY] or self._fitting(heads)
            taken = set(map(id, chosen))
            self._jobs = [job for job in self._jobs if id(job) not in taken]
            self._running = chosen
            return chosen

    def _fitting(self, heads: list[_Job]) -> list[_Job]:
        """The earliest due; a batch that took everything would keep a newcomer waiting."""
        frames = 0
        chosen: list[_Job] = []
        for job in sorted(heads, key=lambda job: job.due):
            frames += len(job.frames)
            if chosen and frames > self._batch_frames:
                break
            chosen.append(job)
        return chosen

    def _decode(self, batch: list[_Job]) -> list[_Outcome]:
        pushes = [(job.state, job.frames, job.last) for job in batch]
        try:
            decoded = self._decoder.push(pushes)
        except CodecError as error:
            if len(batch) == 1:
                return [_Outcome(batch[0], error=error)]
            # Nothing has been decoded: find out whose fault it is.
            return [outcome for job in batch for outcome in self._decode([job])]
        except Exception as error:
            for job in batch:
                job.state.finished = True
            return [_Outcome(job, error=error) for job in batch]
        return [_Outcome(job, pcm=pcm) for job, pcm in zip(batch, decoded, strict=True)]

    def _deliver(self, outcomes: Iterable[_Outcome]) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[_Outcome]] = {}
        for outcome in outcomes:
            by_loop.setdefault(outcome.job.loop, []).append(outcome)
        for loop, group in by_loop.items():
            if not loop.is_closed():
                loop.call_soon_threadsafe(_deliver_all, group)


def _deliver_all(outcomes: list[_Outcome]) -> None:
    for outcome in outcomes:
        outcome.deliver()
