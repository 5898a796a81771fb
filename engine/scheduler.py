"""vLLM's schedulers, with requests of listeners far ahead resting while others are in a hurry, and
with a note of every slot that a cancelled request gives up.

Priorities order vLLM's queue only until a request is let in: from then on it would take part in
every step.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import RequestStatus

from engine.batch import NUMBER_KEY
from engine.frames import PATH_VARIABLE, FrameStore
from engine.lead import Leads, Standing

_FULL = 0.9
"""Share of KV blocks in use beyond which nobody rests: a resting request cannot be preempted."""

_CAPS = ("max_num_running_reqs", "max_num_active_reqs")
"""Most requests that may run, those at rest included: 0.24.0 has the first, 0.32.0 both."""


class _Paced:
    """Hides resting requests from one call of `schedule`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._leads = Leads()
        self._store = FrameStore.attach(Path(os.environ[PATH_VARIABLE]))

    def finish_requests(self: Any, request_ids: Any, finished_status: Any) -> Any:
        aborted = finished_status == RequestStatus.FINISHED_ABORTED
        numbers = self._numbers(request_ids) if aborted else []
        finished = super().finish_requests(request_ids, finished_status)  # type: ignore[misc]
        for number in numbers:
            self._store.note_freed(number, time.monotonic_ns())
        return finished

    def _numbers(self: Any, request_ids: Any) -> list[int]:
        """Of those that still have a slot, or wait for one."""
        if isinstance(request_ids, str):
            request_ids = (request_ids,)
        named = self.requests if request_ids is None else request_ids
        requests = [self.requests.get(name) for name in named]
        return [
            request.sampling_params.extra_args[NUMBER_KEY]
            for request in requests
            if request is not None and not request.is_finished()
        ]

    def schedule(self: Any, *args: Any, **kwargs: Any) -> Any:
        self._store.begin_step()
        resting = self._resting()
        if not resting:
            return super().schedule(*args, **kwargs)  # type: ignore[misc]
        hidden = [request for request in self.running if request.request_id in resting]
        self.running = [request for request in self.running if request.request_id not in resting]
        caps = {name: getattr(self, name) for name in _CAPS if hasattr(self, name)}
        for name, cap in caps.items():
            setattr(self, name, cap - len(hidden))
        try:
            return super().schedule(*args, **kwargs)  # type: ignore[misc]
        finally:
            for name, cap in caps.items():
                setattr(self, name, cap)
            self.running = hidden + self.running

    def _resting(self: Any) -> set[str]:
        arriving = bool(self.waiting)
        if len(self.running) + arriving < 2 or self.kv_cache_manager.usage > _FULL:
            return set()
        standings = [
            Standing(request.request_id, request.priority, request.num_output_tokens)
            for request in self.running
        ]
        resting: set[str] = self._leads.resting(standings, arriving, time.monotonic())
        return resting


class _PacedScheduler(_Paced, Scheduler):  # type: ignore[misc]
    pass


class _PacedAsyncScheduler(_Paced, AsyncScheduler):  # type: ignore[misc]
    pass


class PacedScheduler:
    """What vLLM's `scheduler_cls` names: gives the paced form of the scheduler it would take."""

    def __new__(cls, vllm_config: Any, *args: Any, **kwargs: Any) -> Any:
        in_advance = vllm_config.scheduler_config.async_scheduling
        return (_PacedAsyncScheduler if in_advance else _PacedScheduler)(
            vllm_config, *args, **kwargs
        )
