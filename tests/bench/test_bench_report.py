from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from bench import machine, report
from bench.audible import OnsetFinder
from bench.reference import rows
from bench.scrape import Counters
from bench.turns import Turn
from bench.user import Habits, User
from bench.window import Window, result_of


def load_result(streams: int, dry: int) -> dict[str, Any]:
    """The result of a window in which `dry` of `streams` users heard a gap."""
    window = Window(10.0)
    window.gateway_cpu_seconds, window.gateway_memory_bytes = 12.0, 2**30
    window.counters = Counters(1000, 800, frames=300, steps=100)
    for number in range(streams):
        user = User(Habits("ws://x"), iter(()), random.Random(0), 10.0)
        turn = Turn(OnsetFinder())
        turn.send(0.0, "Hello.")
        turn.audio(0.040, 480, b"\xf8\xff\xfe")
        turn.audio(0.900 if number < dry else 0.060, 480, b"\xf8\xff\xfe")
        user.turns.append(turn)
        user.samples = 24_000
        window.users.append(user)
    return {**machine.about("load"), **result_of(window, price=2.0)}


def test_a_window_becomes_the_promised_numbers() -> None:
    result = load_result(streams=4, dry=1)
    assert result["streams"] == 4
    assert result["gapless_share"] == 0.75
    assert result["gaps"]["count"] == 1
    assert result["first_packet_ms"]["p50"] == 40
    assert result["first_audible_ms"]["p50"] is None
    assert result["audio_seconds_per_second"] == 0.4
    assert result["cpu_seconds_per_audio_second"] == 3
    assert result["prefix_cache"]["hit_rate"] == 0.8
    assert result["frames_per_second"] == 30
    assert result["frames_per_step"] == 3
    assert result["machine_hours_per_speech_hour"] == 2.5
    assert result["cost_per_speech_hour"] == 5
    assert result["machine"]["cores"] >= 1
    json.dumps(result)


def test_users_without_an_answer_or_with_errors_are_not_gapless() -> None:
    window = Window(10.0)
    window.users = [User(Habits("ws://x"), iter(()), random.Random(0), 10.0) for _ in range(3)]
    window.users[1].turns.append(Turn(OnsetFinder()))
    window.users[2].errors.append("capacity")
    result = result_of(window)
    assert result["gapless_share"] == 0
    assert result["unanswered"] == 1
    assert result["errors"] == {"capacity": 1}


def test_reference_rows_are_medians_and_their_ratios() -> None:
    table = rows({1: [10, 30, 20], 16: [200, 100, 300]}, {1: [5, 5, 4], 16: [50, 40, 60]}, [8], 16)
    assert table[0]["times_reference"] == 4
    assert "times_one_after_another" not in table[0]
    assert table[1]["times_reference"] == 4
    assert table[1]["times_one_after_another"] == 25


def results() -> dict[str, dict[str, Any]]:
    """One result of each kind, small."""
    about = machine.about("")
    latencies = {
        name: {"p50": 30.0, "p95": 50.0, "p99": 61.5, "count": 3}
        for name in ("first_packet_ms", "first_audible_ms", "first_sound_ms")
    }
    rates = {"frames_per_second": 41000.0, "times_real_time": 875.0}
    gpu_row = {
        "streams": 512,
        "engine": {
            **rates,
            "first_audio_ms": latencies["first_audible_ms"],
            "gpu": {"memory_gib": 70.5, "utilisation_percent": 93.0},
        },
        "listeners": {"gapless_share": 0.996, "first_audio_ms": latencies["first_audible_ms"]},
        "reference": {"frames_per_second": 3000.0},
        "times_reference": 13.7,
    }
    return {
        "load": load_result(2, 0),
        "capacity": {
            **about,
            "kind": "capacity",
            "largest_gapless": 14,
            "passing_share": 0.99,
            "rows": [load_result(12, 0), load_result(16, 8)],
        },
        "first": {
            **about,
            "kind": "first_audible",
            **latencies,
            "by_language": {"en": latencies, "zh": latencies},
        },
        "reference": {
            **about,
            "kind": "reference",
            "rows": rows({16: [200]}, {16: [50]}, [9], 16),
        },
        "gpu": {**about, "kind": "gpu", "rows": [gpu_row, {"streams": 1}]},
    }


@pytest.mark.parametrize("name", ["load", "capacity", "first", "reference", "gpu"])
def test_every_kind_is_a_regular_table(name: str) -> None:
    text = report.render(results()[name])
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) >= 3
    assert len({line.count("|") for line in lines}) == 1
    assert "None" not in text


def test_numbers_reach_the_table() -> None:
    assert "| 512 | 41,000 |" in report.render(results()["gpu"])
    assert "13.7x" in report.render(results()["gpu"])
    assert "99.6%" in report.render(results()["gpu"])
    assert "**14 streams**" in report.render(results()["capacity"])
    assert "22.2x" in report.render(results()["reference"])
    assert "30 / 50 / 61.5" in report.render(results()["first"])


def test_numbers_from_a_busy_machine_are_marked() -> None:
    result = results()["reference"]
    result["load_average_before"] = result["machine"]["cores"] + 1.5
    assert "BUSY" in report.render(result)
    result["load_average_before"] = 0.1
    assert "BUSY" not in report.render(result)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(report.ReportError, match="weather"):
        report.render({"kind": "weather"})


DOCUMENT = "# Title\n\n<!-- bench:load -->\nold\n<!-- /bench:load -->\n\nafter\n"


def test_filling_replaces_only_what_is_marked_and_settles() -> None:
    once = report.fill(DOCUMENT, results())
    assert once.startswith("# Title\n\n<!-- bench:load -->\n")
    assert once.endswith("<!-- /bench:load -->\n\nafter\n")
    assert "old" not in once
    assert "| streams |" in once
    fixed = results() | {"load": load_result(2, 0)}
    assert report.fill(report.fill(DOCUMENT, fixed), fixed) == report.fill(DOCUMENT, fixed)


def test_a_result_that_is_not_there_is_said_so() -> None:
    assert "Not measured yet." in report.fill(DOCUMENT, {})


def test_command_updates_documents_and_draws_plots(tmp_path: Path) -> None:
    folder = tmp_path / "docs" / "benchmarks"
    folder.mkdir(parents=True)
    for name, result in results().items():
        (folder / f"{name}.json").write_text(json.dumps(result))
    (tmp_path / "README.md").write_text(DOCUMENT)
    assert report.main(["--check", "--root", str(tmp_path)]) == 1
    assert (tmp_path / "README.md").read_text() == DOCUMENT
    assert report.main(["--root", str(tmp_path)]) == 0
    assert report.main(["--check", "--root", str(tmp_path)]) == 0
    for name in ("gpu.png", "gpu.svg", "capacity.png", "capacity.svg", "load.png", "load.svg"):
        assert (folder / name).stat().st_size > 1000


def test_the_documents_show_the_committed_numbers() -> None:
    assert report.main(["--check"]) == 0
