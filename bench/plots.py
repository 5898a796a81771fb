"""Plots of results: PNG or SVG by the name of the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

_OURS, _THEIRS = "#1b6ca8", "#b0560f"


def _figure(columns: int) -> tuple[Any, Any]:
    import matplotlib as mpl

    mpl.use("Agg")
    # SVG files would otherwise differ from run to run in their ids and their date.
    mpl.rcParams["svg.hashsalt"] = "voxgate"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, columns, figsize=(4.6 * columns, 3.6), layout="constrained")
    return figure, axes


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
    figure.savefig(path, dpi=110, metadata=metadata)


def plot_gpu(result: dict[str, Any], path: Path) -> None:
    """Frames a second of both sides and first audio against streams, of a `bench.gpu` result."""
    figure, (rates, firsts) = _figure(2)
    for side, label, colour in (("engine", "Voxgate", _OURS), ("reference", "reference", _THEIRS)):
        points = [
            (row["streams"], row[side]["frames_per_second"])
            for row in result["rows"]
            if side in row
        ]
        if points:
            rates.plot(*zip(*points, strict=True), marker="o", color=colour, label=label)
    for name, style in (("p50", "-"), ("p99", "--")):
        points = [
            (row["streams"], row["listeners"]["first_audio_ms"][name])
            for row in result["rows"]
            if row.get("listeners", {}).get("first_audio_ms", {}).get(name) is not None
        ]
        if points:
            firsts.plot(
                *zip(*points, strict=True), marker="o", color=_OURS, linestyle=style, label=name
            )
    for axes, title in ((rates, "frames a second"), (firsts, "first audio of listeners, ms")):
        axes.set(xlabel="streams", title=title, xscale="log", yscale="log")
        axes.grid(alpha=0.3)
        if axes.lines:
            axes.legend()
    _save(figure, path)


def plot_capacity(result: dict[str, Any], path: Path) -> None:
    """Gapless share and first audible against streams, of a `bench.capacity` result."""
    figure, (shares, firsts) = _figure(2)
    streams = [row["streams"] for row in result["rows"]]
    shares.plot(streams, [100 * row["gapless_share"] for row in result["rows"]], "o-", color=_OURS)
    shares.axhline(99, color=_THEIRS, linewidth=1, linestyle="--")
    shares.set(xlabel="streams", title="gapless streams, %", ylim=(-3, 103))
    for name, style in (("p50", "o-"), ("p99", "o--")):
        values = [row["first_audible_ms"][name] for row in result["rows"]]
        firsts.plot(streams, values, style, color=_OURS, label=name)
    firsts.set(xlabel="streams", title="first audible, ms", yscale="log")
    firsts.legend()
    for axes in (shares, firsts):
        axes.grid(alpha=0.3)
    _save(figure, path)


def plot_load(result: dict[str, Any], path: Path) -> None:
    """Latencies, and playback over time, of a `bench.load` result."""
    figure, (latencies, timeline) = _figure(2)
    names = [
        name for name in ("first_packet_ms", "first_audible_ms", "cancel_ms") if name in result
    ]
    width = 0.25
    for place, part in enumerate(("p50", "p95", "p99")):
        values = [result[name][part] or 0.0 for name in names]
        positions = [index + (place - 1) * width for index in range(len(names))]
        latencies.bar(
            positions, values, width * 0.9, label=part, color=_OURS, alpha=1 - place * 0.3
        )
    labels = [name.removesuffix("_ms").replace("_", " ") for name in names]
    latencies.set_xticks(range(len(names)), labels)
    latencies.set(title="ms", yscale="log")
    latencies.legend()
    seconds = [look["s"] for look in result["timeline"]]
    timeline.plot(seconds, [look["playing"] for look in result["timeline"]], color=_OURS)
    timeline.set(xlabel="s", title=f"{result['streams']} users: playing, and least lead in s")
    leads = [(look["s"], look["least_lead_s"]) for look in result["timeline"]]
    known = [(at, lead) for at, lead in leads if lead is not None]
    timeline.plot([at for at, _ in known], [lead for _, lead in known], color=_THEIRS)
    for axes in (latencies, timeline):
        axes.grid(alpha=0.3)
    _save(figure, path)


PLOTS: dict[str, Callable[[dict[str, Any], Path], None]] = {
    "gpu": plot_gpu,
    "capacity": plot_capacity,
    "load": plot_load,
}
"""By the `kind` a result carries."""
