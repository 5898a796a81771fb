"""The engine process must not outlive the process that started it."""

from __future__ import annotations

import os
import select
from threading import Thread


def exit_with_parent() -> None:
    """End this process at once when its parent is gone, however the parent died."""
    parent = os.getppid()
    try:
        descriptor = os.pidfd_open(parent)
    except (AttributeError, OSError):
        # Not Linux, or the parent is already gone and cannot be waited for.
        if os.getppid() != parent:
            os._exit(1)
        return

    def wait() -> None:
        select.select([descriptor], [], [])
        os._exit(1)

    Thread(target=wait, name="exit-with-parent", daemon=True).start()
