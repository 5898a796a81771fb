"""`losses.csv` of a training run: written as it goes, a row a look, and read for its plot."""

from __future__ import annotations

import csv
from pathlib import Path


def append(out: Path, row: dict[str, float], digits: int) -> None:
    """One more row of `out`/losses.csv; the first one names the columns."""
    path = out / "losses.csv"
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, list(row))
        if new:
            writer.writeheader()
        writer.writerow({name: round(value, digits) for name, value in row.items()})


def read(out: Path) -> list[dict[str, str]]:
    """All rows of `out`/losses.csv so far."""
    path = out / "losses.csv"
    if not path.exists():
        return []
    with path.open() as file:
        return list(csv.DictReader(file))
