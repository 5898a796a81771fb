"""Runs `voxgate` with a scripted engine that has a process of its own, for tests of signals.

    python serve_fake_engine.py (ready | loading) ARGUMENTS...

`loading`: the engine loads until its process ends, and cannot be interrupted.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from fake_engine import FakeSynthesizer

from engine.api import Progress
from gateway.cli import main
from gateway.commands import serve, speaking

MODE = sys.argv[1]


class EngineWithProcess(FakeSynthesizer):
    """Says on standard output whether its process outlived the signal."""

    async def start(self, progress: Progress | None = None) -> None:
        loading = asyncio.ensure_future(asyncio.to_thread(self._load))
        try:
            await asyncio.shield(loading)
        except asyncio.CancelledError:
            await asyncio.gather(loading, return_exceptions=True)
            raise
        await super().start(progress)

    def _load(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        print("loading", flush=True)
        if MODE == "loading":
            self.process.wait()
            raise RuntimeError("the engine's process ended")

    async def close(self) -> None:
        await super().close()
        print("its process", "runs" if self.process.poll() is None else "ended", flush=True)
        self.process.kill()
        self.process.wait()


def factory(_: object) -> type[EngineWithProcess]:
    return EngineWithProcess


if __name__ == "__main__":
    serve.engine_factory = factory
    speaking.engine_factory = factory
    sys.exit(main(sys.argv[2:]))
