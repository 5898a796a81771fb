"""Imported by the fork server before it serves: what engine processes of the CPU are made of."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

# An interrupt from the terminal, which goes to the whole process group, is for the creator.
signal.signal(signal.SIGINT, signal.SIG_IGN)


def _own_folder() -> Iterator[Path]:
    """The folder with the fork server's own address."""
    for link in os.listdir("/proc/self/fd"):
        with suppress(OSError), socket.socket(fileno=os.dup(int(link))) as found:
            address = found.getsockname()
            if isinstance(address, str) and Path(address).name.startswith("listener-"):
                yield Path(address).parent


for folder in _own_folder():
    # Its creator removes it too, but may be killed.
    atexit.register(shutil.rmtree, folder, ignore_errors=True)

import vllm.model_executor.model_loader  # noqa: E402
import vllm.v1.engine.core  # noqa: E402, F401

import engine.runners.v1  # noqa: E402, F401
