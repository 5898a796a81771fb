"""Statistics of the engine, fed by vLLM once a step."""

from __future__ import annotations

from typing import Any

from engine.api import EngineStats
from engine.cancels import Cancels


class Counters:
    """What `stats` reports, fed by vLLM once a step."""

    def __init__(self, cancels: Cancels) -> None:
        self._cancels = cancels
        self.frames = 0
        self.steps = 0
        self._preemptions = self._queries = self._hits = 0
        self.gauges_to_zero()

    def gauges_to_zero(self) -> None:
        self._running = self._waiting = 0
        self._usage = 0.0

    def logger(self, vllm_config: Any, engine_index: int = 0) -> Any:
        """vLLM's `StatLoggerFactory`."""
        from vllm.v1.metrics.loggers import StatLoggerBase

        counters = self

        class Logger(StatLoggerBase):  # type: ignore[misc]
            def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
                pass

            def record(
                self,
                scheduler_stats: Any,
                iteration_stats: Any,
                mm_cache_stats: Any = None,
                engine_idx: int = 0,
            ) -> None:
                counters.record(scheduler_stats, iteration_stats)

            def log_engine_initialized(self) -> None:
                pass

        return Logger(vllm_config, engine_index)

    def record(self, scheduler: Any, iteration: Any) -> None:
        self.steps += 1
        self._cancels.collect()
        if scheduler is not None:
            self._running = scheduler.num_running_reqs
            self._waiting = scheduler.num_waiting_reqs
            self._usage = scheduler.kv_cache_usage
            self._queries += scheduler.prefix_cache_stats.queries
            self._hits += scheduler.prefix_cache_stats.hits
        if iteration is not None:
            self._preemptions += iteration.num_preempted_reqs

    def snapshot(self, state: str, restarts: int) -> EngineStats:
        cancel_steps, cancel_seconds = self._cancels.spreads()
        return EngineStats(
            state=state,
            running=self._running,
            waiting=self._waiting,
            kv_cache_usage=self._usage,
            prefix_cache_queries=self._queries,
            prefix_cache_hits=self._hits,
            preemptions=self._preemptions,
            restarts=restarts,
            frames=self.frames,
            steps=self.steps,
            cancel_steps=cancel_steps,
            cancel_seconds=cancel_seconds,
        )
