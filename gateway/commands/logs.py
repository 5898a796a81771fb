"""Whose log lines reach the terminal."""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime

import orjson

from gateway.journal import FIELDS


class JsonFormatter(logging.Formatter):
    """One JSON object a line: `time` (UTC), `level`, `logger`, then the ids and values of an event,
    or `message`; `error` with the traceback of an exception."""

    def format(self, record: logging.LogRecord) -> str:
        values = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        fields = getattr(record, FIELDS, None)
        values |= {"message": record.getMessage()} if fields is None else fields
        if record.exc_info:
            values["error"] = self.formatException(record.exc_info)
        return orjson.dumps(values, default=str).decode()


def configure_logging(level: str, form: str = "text") -> None:
    """Logs of this process and, unless the environment says otherwise, of the engine's. `form`:
    `text` or `json`."""
    handler = logging.StreamHandler()
    handler.setFormatter(
        JsonFormatter()
        if form == "json"
        else logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    )
    logging.basicConfig(level=level.upper(), handlers=[handler])
    if level in ("debug", "info"):
        os.environ.setdefault("VLLM_LOGGING_LEVEL", level.upper())
    else:
        # What torch and its libraries say of themselves is no operator's business.
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
        os.environ.setdefault("TORCH_LOGS", "-all")
        os.environ.setdefault("PYTHONWARNINGS", "ignore")
