"""docs/observability.md lists the metrics there are, as they are."""

from __future__ import annotations

from pathlib import Path

from engine.api import EngineStats
from gateway.metrics import Metrics
from gateway.tls import watch_certificate

DOCS = Path(__file__).parents[2] / "docs" / "observability.md"


def test_every_metric_is_listed_with_its_kind_and_meaning() -> None:
    metrics = Metrics()
    metrics.watch(lambda: EngineStats(state="ready"))
    metrics.watch_sockets(lambda: 0)
    metrics.watch_admission(pressure=lambda: 0, demand=lambda: 0, capacity=lambda: 0)
    watch_certificate(metrics.registry, Path("none"))
    actual = {
        f"`{family.name}`": (family.type, family.documentation)
        for family in metrics.registry.collect()
    }
    rows = [line for line in DOCS.read_text().splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert {row[0]: (row[1], row[2]) for row in cells} == actual


def test_the_engines_work_is_counted() -> None:
    metrics = Metrics()
    metrics.watch(lambda: EngineStats(state="ready", steps=7, decode_seconds=1.5, frames=9))
    page = metrics.render().decode()
    for line in ("steps_total 7.0", "decode_seconds_total 1.5", "frames_total 9.0"):
        assert f"voxgate_engine_{line}\n" in page
