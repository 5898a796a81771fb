"""Ctrl-C for one process of several.

A terminal sends Ctrl-C to every process it started, the engine's among them, which would then die
before the listeners have heard the end. So SIGINT is blocked, which processes started from here
inherit, and one thread waits for it and hands it to this process's handler alone.
"""

from __future__ import annotations

import _thread
import contextlib
import signal
import threading
from multiprocessing import resource_tracker

import psutil

_SECONDS_TO_STOP = 0.5


class Interrupts:
    """Make one in the main thread, before any process is started."""

    def __init__(self) -> None:
        self.seen = False
        self.loading = True
        """While it is true, an interrupt also ends the processes started here: an engine that loads
        cannot be stopped in any other way, and nobody wants to wait for it."""
        # The tracker's start unblocks SIGINT in its thread, so it has to come first.
        resource_tracker.ensure_running()
        self._spared = {child.pid for child in psutil.Process().children()}
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        threading.Thread(target=self._watch, name="interrupts", daemon=True).start()

    def _watch(self) -> None:
        signal.sigwait({signal.SIGINT})
        self.seen = True
        _thread.interrupt_main(signal.SIGINT)
        while True:
            if signal.sigtimedwait({signal.SIGINT}, _SECONDS_TO_STOP) is not None:
                _thread.interrupt_main(signal.SIGINT)
            elif self.loading:
                self._end_children()

    def _end_children(self) -> None:
        for child in psutil.Process().children(recursive=True):
            if child.pid not in self._spared:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.terminate()
