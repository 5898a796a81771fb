"""The engine process lives exactly as long as the process that started it wants."""

from __future__ import annotations

import os
import select
import signal
from threading import Thread


def adopt_process() -> None:
    """Called once in the main thread of the engine process.

    It exits at once when its parent is gone, however the parent died, and leaves an interrupt from
    the terminal, which goes to the whole process group, to the parent: that one may still want to
    drain what is being spoken.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    descriptor = os.pidfd_open(os.getppid())

    def wait() -> None:
        select.select([descriptor], [], [])
        os._exit(1)

    Thread(target=wait, name="exit-with-parent", daemon=True).start()
