"""Ctrl-C for one process of several.

A terminal sends Ctrl-C to every process it started, the engine's among them, which would then die
before the listeners have heard the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from multiprocessing import resource_tracker
from pathlib import Path

import psutil

from engine.api import (
    AudioChunk,
    EngineLimits,
    EngineStats,
    Progress,
    SpeechRequest,
    Synthesizer,
    Voice,
)

_LOOK_SECONDS = 0.2


def keep_interrupts_here() -> None:
    """From now on, processes that this one starts do not get SIGINT; this one still does.

    Call it in the main thread. A blocked signal stays blocked in the processes a thread starts, and
    one thread that does not block it is enough to receive it.
    """
    # The tracker's start unblocks SIGINT in its thread, so it has to come first.
    resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    unblocked = threading.Event()

    def receive() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        unblocked.set()
        threading.Event().wait()

    threading.Thread(target=receive, name="interrupts", daemon=True).start()
    unblocked.wait()


class StoppableStart:
    """A synthesizer whose start, when it is cancelled, ends the processes it has started.

    An engine that loads can be stopped in no other way, and nobody wants to wait for it. Some of
    its processes begin when it is made.
    """

    def __init__(self, make: Callable[[], Synthesizer]) -> None:
        self._older = {child.pid for child in psutil.Process().children(recursive=True)}
        self._synthesizer = make()

    async def start(self, progress: Progress | None = None) -> None:
        loading = asyncio.ensure_future(self._synthesizer.start(progress))
        try:
            await asyncio.shield(loading)
        except asyncio.CancelledError:
            loading.cancel()
            while not loading.done():
                for child in psutil.Process().children(recursive=True):
                    if child.pid not in self._older:
                        with contextlib.suppress(psutil.NoSuchProcess):
                            child.kill()
                await asyncio.wait({loading}, timeout=_LOOK_SECONDS)
            raise

    async def close(self) -> None:
        await self._synthesizer.close()

    def voices(self) -> Sequence[Voice]:
        return self._synthesizer.voices()

    def voice_files(self) -> Sequence[Path]:
        return self._synthesizer.voice_files()

    async def reload_voices(self) -> None:
        await self._synthesizer.reload_voices()

    @property
    def limits(self) -> EngineLimits:
        return self._synthesizer.limits

    def stats(self) -> EngineStats:
        return self._synthesizer.stats()

    def speak(self, request: SpeechRequest) -> AsyncGenerator[AudioChunk, None]:
        return self._synthesizer.speak(request)
