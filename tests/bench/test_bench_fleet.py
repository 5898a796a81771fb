"""Several engines: how GPUs and listeners are shared out, and how answers add up."""

from __future__ import annotations

import json
from argparse import ArgumentTypeError
from pathlib import Path

import pytest

from bench import gpu_slice, report
from bench.fleet import listeners_row, merge, shares, split

ANSWER = {
    "seconds": 2.0,
    "first_seconds": [0.03],
    "gaps": [],
    "samples": 96_000,
    "gapless": 1,
    "listeners": 1,
    "errors": {},
    "engine_prefix_cache_queries": 10,
    "engine_prefix_cache_hits": 4,
    "engine_preemptions": 0,
    "engine_frames": 90,
}


def test_engines_of_one_gpu_share_its_memory_and_those_of_two_do_not() -> None:
    assert shares(1, 1, 0.6) == [(0, 0.6)]
    assert shares(2, 1, 0.6) == [(0, 0.3), (0, 0.3)]
    assert shares(2, 2, 0.6) == [(0, 0.6), (1, 0.6)]
    assert shares(3, 2, 0.6) == [(0, 0.3), (1, 0.6), (0, 0.3)]
    with pytest.raises(ValueError, match="at least one"):
        shares(0, 1, 0.6)


@pytest.mark.parametrize(("total", "parts"), [(10, 1), (10, 3), (2, 4), (0, 2)])
def test_listeners_are_spread_evenly(total: int, parts: int) -> None:
    spread = split(total, parts)
    assert sum(spread) == total
    assert max(spread) - min(spread) <= 1


def test_answers_add_up_to_that_of_one_engine() -> None:
    other = {**ANSWER, "seconds": 2.5, "gapless": 0, "gaps": [0.5], "errors": {"runaway": 2}}
    row = listeners_row(merge([ANSWER, other]))
    assert row["streams"] == 2
    assert row["gapless_share"] == 0.5
    assert row["first_audio_ms"]["count"] == 2
    assert row["audio_seconds_per_second"] == 3.2
    assert row["prefix_cache_hit_rate"] == 0.4
    assert row["errors"] == {"runaway": 2}


def test_requests_are_counted_in_the_time_they_took() -> None:
    row = gpu_slice.requests_row([0.1, 0.3], 2.0)
    assert row["qps"] == 1
    assert row["ms"]["p50"] == 200


def test_parts_are_named_and_unknown_ones_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_slice.main(["--list"]) == 0
    assert capsys.readouterr().out.count("about") == len(gpu_slice.PARTS)
    assert gpu_slice._parts("table,engines") == ["table", "engines"]
    with pytest.raises(ArgumentTypeError, match="nothing"):
        gpu_slice._parts("table,nothing")


@pytest.mark.engine
def test_two_engines_on_tiny_random_weights(tmp_path: Path) -> None:
    arguments = (
        "--parts engines --device cpu --size small --eager --engines 2 --streams 2"
        f" --frames 40 --seconds 2 --max-streams 8 --budget 600 --out {tmp_path}"
    )
    assert gpu_slice.main(arguments.split()) == 0
    fleet = json.loads((tmp_path / "gpu-fleet.json").read_text())
    assert fleet["errors"] == {}
    assert [(row["engines"], row["streams"]) for row in fleet["rows"]] == [(2, 2)]
    assert fleet["rows"][0]["first_audio_ms"]["count"] == 2
    assert "| 2 | 1 | 2 |" in report.render(fleet)
