"""Caption files and piped captions as updates with times."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import orjson
import webvtt
from webvtt.errors import MalformedCaptionError, MalformedFileError


class CueError(ValueError):
    """Captions that cannot be read. The message says why."""


class Update(NamedTuple):
    """The text on the screen from `at` seconds on. `final`: it will not be corrected."""

    at: float
    text: str
    final: bool = False


def read_file(path: Path) -> list[Update]:
    """The updates of a WebVTT or SRT file, in order. Raises `CueError`."""
    try:
        content = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as failure:
        raise CueError(f"{path} cannot be read: {failure}.") from failure
    form = "vtt" if content.lstrip().startswith("WEBVTT") else "srt"
    try:
        cues = webvtt.from_buffer(io.StringIO(content), format=form)
    except (MalformedFileError, MalformedCaptionError) as failure:
        raise CueError(f"{path} is neither WebVTT nor SRT: {failure}.") from failure
    updates = sorted(_updates(cues))
    if not updates:
        raise CueError(f"{path} has no captions.")
    return updates


def _updates(cues: webvtt.WebVTT) -> Iterator[Update]:
    for cue in cues.captions:
        text = " ".join(line.strip() for line in cue.text.splitlines() if line.strip())
        hours, minutes, seconds = cue.start.split(":")
        if text:
            yield Update(int(hours) * 3600 + int(minutes) * 60 + float(seconds), text)


def read_line(line: str, at: float) -> Update | None:
    """One piped line: plain text, said as it is, or `{"text": ..., "final": false}` for text that
    may yet be corrected. Nothing of an empty line. Raises `CueError`."""
    line = line.strip()
    if not line.startswith("{"):
        return Update(at, line, True) if line else None
    try:
        values = orjson.loads(line)
        text, final = values["text"], values.get("final", False)
    except (orjson.JSONDecodeError, KeyError) as failure:
        raise CueError(f"Not a caption: {line[:60]!r} ({failure}).") from failure
    if not isinstance(text, str) or not isinstance(final, bool):
        raise CueError(f"`text` is text and `final` true or false, not so in {line[:60]!r}.")
    return Update(at, text.strip(), final) if text.strip() else None
