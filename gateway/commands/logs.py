"""Whose log lines reach the terminal."""

from __future__ import annotations

import logging
import os


def configure_logging(level: str) -> None:
    """Logs of this process and, unless the environment says otherwise, of the engine's."""
    logging.basicConfig(
        level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    if level in ("debug", "info"):
        os.environ.setdefault("VLLM_LOGGING_LEVEL", level.upper())
    else:
        # What torch and its libraries say of themselves is no operator's business.
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
        os.environ.setdefault("TORCH_LOGS", "-all")
        os.environ.setdefault("PYTHONWARNINGS", "ignore")
