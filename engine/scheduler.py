"""vLLM's schedulers, with requests of listeners far ahead resting while others are in a hurry.

Priorities order vLLM's queue only until a request is let in: from then on it would take part in
every step.
"""

from __future__ import annotations

import time
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

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

    def schedule(self: Any, *args: Any, **kwargs: Any) -> Any:
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
