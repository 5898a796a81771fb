"""The benchmarks on the real engine: that they measure, stop and leave nothing behind."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

import psutil
import pytest

from bench import gpu, load

pytestmark = pytest.mark.engine


def test_load_generator_with_a_gateway_of_its_own(tmp_path: Path) -> None:
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    target = tmp_path / "result.json"
    options = Namespace(
        streams=2,
        seconds=8.0,
        url=None,
        json=str(target),
        serve=["--eager"],
        quiet=True,
        ramp=0.5,
        think=0.0,
        barge_in=1.0,
        slow_readers=0.5,
        plot=[tmp_path / "load.svg"],
    )
    assert load.main(options) == 0
    result = json.loads(target.read_text())
    assert result["streams"] == 2
    assert result["errors"] == {}
    assert 0 <= result["gapless_share"] <= 1
    for name in ("first_packet_ms", "first_audible_ms"):
        assert 0 < result[name]["p50"] <= result[name]["p95"] <= result[name]["p99"]
    assert result["audio_seconds_per_second"] > 0
    assert result["cpu_seconds_per_audio_second"] > 0
    assert result["cancel_ms"]["count"] > 0
    assert result["slots_freed"]["count"] >= 0
    assert result["frames_per_second"] > 0
    assert result["timeline"]
    assert (tmp_path / "load.svg").stat().st_size > 1000
    assert result["machine"]["cpu"]
    left = {process.pid for process in psutil.Process().children(recursive=True)} - before
    assert not {
        pid
        for pid in left
        if psutil.pid_exists(pid) and "gateway.cli" in " ".join(psutil.Process(pid).cmdline())
    }


def test_load_generator_without_a_gateway_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    options = Namespace(url="http://127.0.0.1:9", streams=1, seconds=1.0, quiet=True, json=None)
    assert load.main(options) == 1
    assert "unreachable" in capsys.readouterr().err


def test_gpu_benchmark_end_to_end_on_tiny_random_weights(tmp_path: Path) -> None:
    target, picture = tmp_path / "gpu.json", tmp_path / "gpu.png"
    status = gpu.main(
        "--device cpu --size small --eager --budget 1200 --streams 1 3 --frames 40 --seconds 2"
        f" --source {tmp_path} --json {target} --plot {picture}".split()
    )
    result = json.loads(target.read_text())
    # The reference is not there: its parts fail, everything else is measured all the same.
    assert status == 1
    assert set(result["errors"]) == {"reference, 1 at once", "reference, 3 at once"}
    assert "is not the package folder" in str(result["errors"])
    assert [row["streams"] for row in result["rows"]] == [1, 3]
    for row in result["rows"]:
        assert row["engine"]["frames_per_second"] > 0
        assert row["engine"]["first_audio_ms"]["count"] == row["streams"]
        assert 0 <= row["listeners"]["gapless_share"] <= 1
        assert row["listeners"]["errors"] == {}
    assert picture.stat().st_size > 1000
