from __future__ import annotations

import pytest

from bench.scrape import Counters, metrics_url, read_metrics
from engine.api import EngineStats, Spread
from gateway.metrics import Metrics


def test_reads_what_the_gateway_shows() -> None:
    metrics = Metrics()
    spread = Spread(bounds=(1.0, 2.0), counts=(2, 1, 0), total=4.0)
    stats = EngineStats(
        state="ready", frames=900, steps=300, cancel_steps=spread, cancel_seconds=spread
    )
    metrics.watch(lambda: stats)
    metrics.prompt(200, 150)
    metrics.prompt(100, 75)
    seen = read_metrics(metrics.render().decode())
    assert (seen.prompt_tokens, seen.cached_tokens) == (300, 225)
    assert (seen.frames, seen.steps) == (900, 300)
    assert seen.slots_freed() == {
        "count": 3,
        "mean_ms": 1333,
        "mean_steps": 1.333,
        "share_within_two_steps": 1.0,
    }


def test_rates_of_a_window_and_of_nothing() -> None:
    window = Counters(500, 350) - Counters(100, 50)
    assert window.prefix_cache() == {"prompt_tokens": 400, "cached_tokens": 300, "hit_rate": 0.75}
    assert read_metrics("").prefix_cache()["hit_rate"] is None
    assert read_metrics("").slots_freed()["mean_ms"] is None


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080/metrics"),
        ("ws://host:1/v1/stream", "http://host:1/metrics"),
        ("wss://host/v1/stream", "https://host/metrics"),
        ("host:9", "http://host:9/metrics"),
    ],
)
def test_metrics_are_on_the_same_server(url: str, expected: str) -> None:
    assert metrics_url(url) == expected
