"""Starting engine processes quickly: nearly all of it is imports, so they run ahead.

vLLM starts an engine process from nothing, which then imports for as long as this process did. A
fork server (Python's own) imports at the same time as this process instead, and engine processes
are forked from it: the first start takes little more than half the time, and a restart a few
seconds. Only on the CPU: a GPU's driver must not be carried over a fork.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.forkserver
import os
from collections.abc import Iterator
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any

from engine.runners.environment import constants, environment

CORES_VARIABLE = "VOXGATE_CORES"
"""Environment variable: the cores an engine process may use, separated by commas."""

_PRELOAD = ["engine.runners.preload"]
_PRELOAD_COMPILED = [*_PRELOAD, "engine.runners.preload_compiler"]


def start_importing(*, compiled: bool) -> None:
    """Have the imports run in the fork server; returns at once. Later calls change nothing."""
    multiprocessing.set_forkserver_preload(_PRELOAD_COMPILED if compiled else _PRELOAD)
    with environment(constants()):
        multiprocessing.forkserver.ensure_running()


@contextlib.contextmanager
def forked_engine() -> Iterator[None]:
    """Within, vLLM starts its engine processes from the fork server."""
    from vllm.v1.engine import utils

    context = ForkServerContext()
    context.Process = EngineProcess  # type: ignore[misc]
    original = utils.get_mp_context
    utils.get_mp_context = lambda: context
    try:
        yield
    finally:
        utils.get_mp_context = original


class EngineProcess(ForkServerProcess):
    """A process with the environment of its creator, which its fork server does not share."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._environment = dict(os.environ)

    def run(self) -> None:
        # Only what differs: the process could not be given its name if all of it were replaced.
        for name in os.environ.keys() - self._environment.keys():
            del os.environ[name]
        for name, value in self._environment.items() - os.environ.items():
            os.environ[name] = value
        cores = os.environ.get(CORES_VARIABLE)
        if cores:
            import torch

            bound = [int(core) for core in cores.split(",")]
            os.sched_setaffinity(0, bound)
            torch.set_num_threads(len(bound))
        super().run()
