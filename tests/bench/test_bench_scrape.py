from __future__ import annotations

import pytest

from bench.scrape import PrefixCache, metrics_url, read_metrics
from engine.api import EngineStats
from gateway.metrics import Metrics


def test_reads_what_the_gateway_shows() -> None:
    metrics = Metrics()
    metrics.watch(lambda: EngineStats(state="ready"))
    metrics.prompt(200, 150)
    metrics.prompt(100, 75)
    assert read_metrics(metrics.render().decode()) == PrefixCache(300, 225)


def test_rate_of_a_window_and_of_nothing() -> None:
    window = PrefixCache(500, 350) - PrefixCache(100, 50)
    assert window.as_dict() == {"prompt_tokens": 400, "cached_tokens": 300, "hit_rate": 0.75}
    assert read_metrics("").as_dict()["hit_rate"] is None


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
