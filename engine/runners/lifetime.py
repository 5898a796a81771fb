"""The engine process lives exactly as long as the process that started it wants."""

from __future__ import annotations

import multiprocessing.util
import os
import select
import signal
from pathlib import Path
from threading import Thread
from typing import Any

CREATOR_VARIABLE = "VOXGATE_CREATOR"
"""Environment variable: the process the engine serves. Its parent may be a fork server instead."""

STOP_SIGNAL = signal.SIGUSR1
"""What the creator sends to end the engine process."""


def adopt_process(rendezvous: str) -> None:
    """Called once in the main thread of the engine process, when its process group is set up.

    It exits at once when its creator is gone, however that died, or sends `STOP_SIGNAL`. What goes
    to the whole process group (an interrupt from the terminal, the SIGTERM of a service manager) is
    left to the creator, which may still want to drain what is being spoken. `rendezvous` is the URL
    at which the members of the process group met; the file behind it has served its purpose.
    """
    if rendezvous.startswith("file://"):
        Path(rendezvous.removeprefix("file://")).unlink(missing_ok=True)
    for everyones in (signal.SIGINT, signal.SIGTERM):
        signal.signal(everyones, signal.SIG_IGN)
    signal.signal(STOP_SIGNAL, _exit)
    try:
        descriptor = os.pidfd_open(int(os.environ[CREATOR_VARIABLE]))
    except ProcessLookupError:
        os._exit(1)

    def wait() -> None:
        select.select([descriptor], [], [])
        os._exit(1)

    Thread(target=wait, name="exit-with-creator", daemon=True).start()


def _exit(_signal: int, _frame: Any) -> None:
    # An orderly exit takes seconds of tearing the heap down, with nothing in it to save. Named
    # semaphores are the one thing the system would not take back by itself.
    multiprocessing.util._exit_function()  # type: ignore[attr-defined]
    os._exit(0)
