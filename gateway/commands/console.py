"""What every subcommand says and how it fails. Standard output is for results alone."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from engine.api import Progress as Report

DEFAULT_URL = "ws://127.0.0.1:8080"


class CommandError(Exception):
    """Ends the command with this message and exit code."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


def stderr() -> Console:
    return Console(stderr=True, highlight=False, soft_wrap=True)


def stdout() -> Console:
    """For tables: as wide as the terminal, and unbroken lines where another program reads."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else 200)


def command() -> str:
    """How the person at this terminal can call `voxgate`."""
    if shutil.which("voxgate") is not None:
        return "voxgate"
    script = Path(sys.executable).parent / "voxgate"
    try:
        return str(script.relative_to(Path.cwd()))
    except ValueError:
        return str(script)


@contextmanager
def starting(console: Console) -> Iterator[Report]:
    """A bar on a terminal, a line a step elsewhere, until the block ends."""
    if not console.is_terminal:
        yield _plain(console)
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=1.0)
        yield lambda doing, done: bar.update(task, description=doing, completed=done)


def _plain(console: Console) -> Report:
    began = time.monotonic()

    def report(doing: str, done: float) -> None:
        console.print(f"{time.monotonic() - began:5.1f} s  {doing} ({done:.0%})")

    return report
