"""Begins what takes longest before anything large is imported here."""

from __future__ import annotations

from pathlib import Path

from engine.runners.launch import start_importing
from engine.settings import EngineSettings

_NVIDIA_DRIVER = Path("/proc/driver/nvidia")


def begin(settings: EngineSettings) -> None:
    """Have the engine process's imports run at the same time as those of this one.

    Returns at once. Whether it will be needed is a guess, which costs some CPU time when wrong.
    """
    device = settings.device
    if device == "cpu" or (device == "auto" and not _NVIDIA_DRIVER.exists()):
        start_importing(compiled=settings.compiled is not False)
