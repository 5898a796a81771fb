"""Comparisons: turns, resuming, and what becomes of a variant that fails."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bench import report
from bench.features import FEATURES
from bench.gateway_process import GatewayError
from bench.sweep import DEFAULTS, GPU_SWEEPS, SWEEPS
from bench.tables import merged
from bench.tuned import Tuning
from bench.variants import Store, run_rounds

LATENCIES = {"p50": 30.0, "p95": 50.0, "p99": 61.5, "count": 3}


def measured(streams: int = 4, speech: float = 3.0) -> dict[str, Any]:
    window = {
        "streams": streams,
        "gapless_share": 1.0,
        "first_packet_ms": LATENCIES,
        "first_audible_ms": LATENCIES,
        "audio_seconds_per_second": speech,
        "cpu_seconds_per_audio_second": 0.1,
        "gateway_memory_mib": 900.0,
        "prefix_cache": {"hit_rate": 0.8},
    }
    return {"alone": {"first_audible_ms": LATENCIES}, "windows": [window]}


def test_rounds_go_through_the_variants_and_back(tmp_path: Path) -> None:
    names = ["a", "b", "c"]
    store = Store(tmp_path / "r.json", "features", names, {})
    order = []
    while (name := store.next(names, 2)) is not None:
        order.append(name)
        store.add(name, measured())
    assert order == ["a", "b", "c", "c", "b", "a"]


def test_a_run_goes_on_where_the_last_one_stopped(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    Store(path, "features", ["a", "b"], {"seconds": 1}).add("a", measured())
    again = Store(path, "features", ["a", "b"], {"seconds": 1})
    assert again.next(["a", "b"], 1) == "b"
    with pytest.raises(ValueError, match="other settings"):
        Store(path, "features", ["a", "b"], {"seconds": 2})


@pytest.mark.parametrize(("budget", "done"), [(0.0, 0), (1000.0, 3)])
async def test_the_budget_ends_a_run_and_failures_are_noted_once(
    tmp_path: Path, budget: float, done: int
) -> None:
    path = tmp_path / "r.json"
    variants = {"a": Tuning(), "broken": Tuning(), "c": Tuning()}
    tried: list[str] = []

    async def measure(name: str, _tuning: Tuning, _options: Namespace) -> dict[str, Any]:
        tried.append(name)
        if name == "broken":
            raise GatewayError("vLLM says no")
        return measured()

    store = Store(path, "features", list(variants), {})
    options = Namespace(rounds=1, budget=budget)
    await run_rounds(store, variants, options, measure, Console(quiet=True))
    assert len(tried) == done
    if done == 3:
        result = json.loads(path.read_text())
        assert result["errors"] == {"broken": "GatewayError: vLLM says no"}
        assert "does not run" in report.render(result)


def test_medians_of_rounds() -> None:
    rounds = [{"x": 1, "y": {"z": 2.0}, "n": None}, {"x": 5, "y": {"z": 4.0}, "n": 1}]
    assert merged([*rounds, {"x": 3, "y": {"z": 9.0}, "n": 1}]) == {
        "x": 3,
        "y": {"z": 4.0},
        "n": None,
    }


@pytest.mark.parametrize("name", ["streams", "stream_interval"])
def test_sweeps_become_tables_and_plots(tmp_path: Path, name: str) -> None:
    settings = {"name": name, "default": DEFAULTS.get(name), "levels": [4]}
    values = ["as shipped"] if name == "streams" else ["1", "2"]
    store = Store(tmp_path / "r.json", "sweep", values, settings)
    for value in values:
        store.add(value, measured())
    text = report.render(store.result)
    assert "| 4 | 100" in text
    assert len(report.plot(store.result, tmp_path / "r")) == 2
    assert (tmp_path / "r.svg").stat().st_size > 1000


def test_features_become_a_table_and_a_plot(tmp_path: Path) -> None:
    store = Store(tmp_path / "r.json", "features", list(FEATURES), {})
    store.add("all on", measured())
    store.add("no prefix cache", measured(speech=2.0))
    text = report.render(store.result)
    assert "| no prefix cache | 30 | 4 | 100% | 30 / 61.5 | 2 |" in text
    assert "not measured yet" in text
    assert report.plot(store.result, tmp_path / "r")


def test_every_sweep_holds_its_default_and_every_setting_exists() -> None:
    from dataclasses import fields

    from engine.chunking import ChunkPolicy
    from engine.settings import EngineSettings
    from gateway.cutting import Lengths

    known = {field.name for field in fields(EngineSettings)}
    tunings = [
        tune(value) for values, tune in [*SWEEPS.values(), *GPU_SWEEPS.values()] for value in values
    ]
    for name, default in DEFAULTS.items():
        assert default in SWEEPS[name][0]
    for tuning in [*tunings, *FEATURES.values()]:
        assert tuning.engine.keys() <= known
        ChunkPolicy(**tuning.chunks)
        Lengths(**tuning.lengths)
    assert ChunkPolicy().largest == DEFAULTS["frames_per_decode"]
    assert Lengths().max_seconds == DEFAULTS["piece_seconds"]
