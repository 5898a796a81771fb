"""Imported by the fork server before it serves: what engine processes of the CPU are made of."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from engine.runners.imports import settled

# What goes to the whole process group (an interrupt, a service manager's SIGTERM) is the creator's.
for everyones in (signal.SIGINT, signal.SIGTERM):
    signal.signal(everyones, signal.SIG_IGN)


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

with settled():
    import vllm.compilation.backends
    import vllm.compilation.caching
    import vllm.compilation.passes.pass_manager
    import vllm.distributed.elastic_ep.elastic_execute
    import vllm.model_executor.model_loader
    import vllm.v1.attention.backends.cpu_attn
    import vllm.v1.engine.core  # noqa: F401
    from torch._dynamo.backends import registry
    from vllm.platforms import current_platform

    import engine.runners.v1
    import engine.scheduler  # noqa: F401

    registry.list_backends()
    # It looks through all modules there are; once is enough.
    register_overrides = functools.cache(current_platform.register_triton_kernel_overrides)
    type(current_platform).register_triton_kernel_overrides = staticmethod(register_overrides)
    register_overrides()
