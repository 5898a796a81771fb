"""Keeps one engine process running: starts it, watches it, starts another when it dies or hangs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from typing import TYPE_CHECKING, Literal

import psutil

from engine import vllm_engine
from engine.api import SpeechError
from engine.counters import Counters
from engine.frames import FrameStore
from engine.lm_config import LmConfig
from engine.runners.lifetime import STOP_SIGNAL
from engine.vllm_engine import LanguageModelSettings
from engine.watchdog import Watchdog, waited_seconds

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM

_log = logging.getLogger(__name__)

_BACK_OFF = (0.0, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds before each attempt to start a new engine process; the last one repeats."""

_PROVEN_SECONDS = 60.0
"""A process that lived this long was sound: the next one is started without delay."""

_LOOK_SECONDS = 1.0


class SupervisedEngine:
    """The engine process of the moment. All methods belong to one event loop.

    When the process dies or hangs, every pending generation fails at once and another process is
    started in the background on the same frame store.
    """

    def __init__(
        self,
        settings: LanguageModelSettings,
        lm_config: LmConfig,
        store: FrameStore,
        counters: Counters,
    ) -> None:
        self._settings = settings
        self._lm_config = lm_config
        self._store = store
        self._counters = counters
        self.state: Literal["starting", "ready", "restarting", "stopped"] = "stopped"
        self.restarts = 0
        self._closed = False
        self._llm: AsyncLLM | None = None
        self._processes: list[psutil.Process] = []
        self._sentinels: list[int] = []
        self._launching: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._attempt = 0
        self._ready_at = 0.0

    @property
    def llm(self) -> AsyncLLM:
        """vLLM's client of the process. Raises `SpeechError` as `gone` while there is none."""
        if self.state != "ready" or self._llm is None or self._llm.errored:
            raise self.gone()
        return self._llm

    def gone(self) -> SpeechError:
        """Why there is no process: `engine_restarting` (retryable) or `engine_stopped`."""
        if self.state == "stopped":
            return SpeechError("engine_stopped", "the speech engine is not running")
        return SpeechError(
            "engine_restarting", "the speech engine is restarting; try again soon", retryable=True
        )

    async def start(self) -> None:
        """Start the engine process; takes some seconds, off the event loop.

        Raises what vLLM raises, and `SpeechError("engine_stopped")` if closed meanwhile.
        """
        self.state = "starting"
        self._launching = asyncio.create_task(self._launch())
        try:
            await self._launching
        except asyncio.CancelledError:
            if self._closed:
                raise self.gone() from None
            raise
        finally:
            if not self._llm:
                self.state = "stopped"

    async def close(self) -> None:
        """Stop the engine process; pending generations fail."""
        if self._closed:
            return
        self._closed = True
        self.state = "stopped"
        if self._launching is not None:
            self._launching.cancel()
            await asyncio.wait([self._launching])
        await self._discard()

    async def _launch(self) -> None:
        starting = asyncio.ensure_future(
            asyncio.to_thread(
                vllm_engine.start,
                self._settings,
                self._lm_config,
                self._store,
                self._counters.logger,
                self._take,
            )
        )
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            # The thread cannot be interrupted; what it starts must not outlive us.
            while not starting.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([starting])
            # Or asyncio would report it.
            starting.exception()
            await self._discard()
            raise
        assert self._llm is not None
        self._counters.gauges_to_zero()
        loop = asyncio.get_running_loop()
        self._sentinels = vllm_engine.sentinels(self._llm)
        for sentinel in self._sentinels:
            loop.add_reader(sentinel, self._on_death)
        self._watching = loop.create_task(self._watch(self._llm))
        self._ready_at = time.monotonic()
        self.state = "ready"

    def _take(self, llm: AsyncLLM) -> None:
        self._llm = llm
        self._processes = vllm_engine.processes(llm)

    async def _watch(self, llm: AsyncLLM) -> None:
        watchdog = Watchdog()
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                hangs = watchdog.hangs(
                    time.monotonic(),
                    pending=llm.output_processor.has_unfinished_requests(),
                    steps=self._counters.steps,
                    cpu_seconds=self._cpu_seconds,
                )
            except psutil.NoSuchProcess:
                return
            if hangs:
                _log.error("the engine process hangs; killing it")
                self._signal(signal.SIGKILL)
                return

    def _cpu_seconds(self) -> float:
        families = [[p, *p.children(recursive=True)] for p in self._processes]
        spent: float = sum(
            sum(p.cpu_times()[:4]) + waited_seconds(p.pid) for family in families for p in family
        )
        return spent

    def _signal(self, number: signal.Signals) -> None:
        for process in self._processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def _on_death(self) -> None:
        """The engine process ended by itself or was killed."""
        _log.error("the engine process died; starting another")
        self._stop_watching()
        self.state = "restarting"
        self._fail_pending()
        if time.monotonic() - self._ready_at > _PROVEN_SECONDS:
            self._attempt = 0
        self._launching = asyncio.get_running_loop().create_task(self._relaunch())

    async def _relaunch(self) -> None:
        while True:
            await self._discard()
            await asyncio.sleep(_BACK_OFF[min(self._attempt, len(_BACK_OFF) - 1)])
            self._attempt += 1
            try:
                await self._launch()
            except Exception:
                _log.exception("the engine process did not start (attempt %d)", self._attempt)
                continue
            self.restarts += 1
            return

    async def _discard(self) -> None:
        """Stop the current engine process, if there is one."""
        self._stop_watching()
        self._fail_pending()
        llm, self._llm = self._llm, None
        if llm is not None:
            if llm.output_handler is not None:
                # Or it would report the end of the engine process as an error.
                llm.output_handler.cancel()
            self._signal(STOP_SIGNAL)
            await asyncio.to_thread(vllm_engine.stop, llm)
        # What vLLM knows of a process ends with its fork server. Two on one store must never be.
        self._signal(signal.SIGKILL)
        self._processes = []

    def _stop_watching(self) -> None:
        loop = asyncio.get_running_loop()
        for sentinel in self._sentinels:
            loop.remove_reader(sentinel)
        self._sentinels = []
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None

    def _fail_pending(self) -> None:
        if self._llm is not None:
            from vllm.v1.engine.exceptions import EngineDeadError

            self._llm.output_processor.propagate_error(EngineDeadError())
