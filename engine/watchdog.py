"""Tells an engine process that hangs from one that is slow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

IDLE_SECONDS = 10.0
"""Without a step while requests are pending and the process does nothing: stopped, deadlocked."""

BUSY_SECONDS = 60.0
"""Without a step while the process works: a long prompt or a compilation takes less."""

_IDLE_SHARE = 0.02
"""Of one core. Answering its sockets takes less."""

_LONGEST_GAP = 2.0
"""Seconds between two looks that count. A longer gap says that this process did not run: it may
have been suspended together with the other, and has not yet read what the other sent."""


class Watchdog:
    """Fed once a second with what can be seen from outside.

    Silence is time with requests pending in which no step was reported. CPU time is only asked for
    once there is some.
    """

    def __init__(self) -> None:
        self._steps = -1
        self._looked = 0.0
        self._silence = 0.0
        self._cpu = 0.0

    def hangs(
        self, now: float, *, pending: bool, steps: int, cpu_seconds: Callable[[], float]
    ) -> bool:
        """Whether to give the process up.

        `now` in seconds of a monotonic clock, `steps` reported so far, `cpu_seconds` used by the
        process and its children or waited for: one that others keep from running is not idle.
        """
        gap = min(now - self._looked, _LONGEST_GAP)
        self._looked = now
        if not pending or steps != self._steps:
            self._steps = steps
            self._silence = 0.0
            return False
        if not self._silence:
            self._cpu = cpu_seconds()
        self._silence += gap
        if self._silence < IDLE_SECONDS:
            return False
        idle = cpu_seconds() - self._cpu < _IDLE_SHARE * self._silence
        return idle or self._silence >= BUSY_SECONDS


def waited_seconds(pid: int) -> float:
    """How long the threads of a process were ready to run while others ran; 0 where the kernel does
    not tell."""
    waited = 0
    for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            waited += int(thread.read_text().split()[1])
        except (OSError, ValueError, IndexError):
            continue
    return waited / 1e9
