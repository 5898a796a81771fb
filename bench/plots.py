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


def plot_features(result: dict[str, Any], path: Path) -> None:
    """First audible alone and under load, and gapless share, of every variant."""
    from bench.tables import windows_of

    rows = [row for row in result["rows"] if row["rounds"]][::-1]
    names = [row["variant"] for row in rows]
    last = [windows_of(row)[-1] for row in rows]
    alone = [row["rounds"][0]["alone"]["first_audible_ms"]["p50"] for row in rows]
    figure, panels = _figure(3)
    speech = [window["audio_seconds_per_second"] for window in last]
    loaded = [window["first_audible_ms"]["p50"] or 0.0 for window in last]
    streams = last[0]["streams"] if last else 0
    for axes, values, title in (
        (panels[0], alone, "first audible alone, ms"),
        (panels[1], loaded, f"first audible at {streams} streams, ms"),
        (panels[2], speech, f"speech a second at {streams} streams, s"),
    ):
        colours = [_OURS if name == "all on" else _THEIRS for name in names]
        axes.barh(names, values, color=colours)
        axes.set(title=title)
        axes.grid(alpha=0.3, axis="x")
    panels[1].set_xscale("log")
    for axes in panels[1:]:
        axes.set_yticklabels([])
    _save(figure, path)


def plot_sweep(result: dict[str, Any], path: Path) -> None:
    """First audible, speech a second and memory against streams, or against the swept value."""
    from bench.tables import windows_of

    figure, (firsts, speech) = _figure(2)
    name = result["settings"]["name"]
    rows = [row for row in result["rows"] if row["rounds"]]
    if name == "streams":
        windows = windows_of(rows[0]) if rows else []
        at = [window["streams"] for window in windows]
        for part, style in (("p50", "o-"), ("p99", "o--")):
            values = [window["first_audible_ms"][part] for window in windows]
            firsts.plot(at, values, style, color=_OURS, label=f"first audible {part}, ms")
        speech.plot(at, [w["audio_seconds_per_second"] for w in windows], "o-", color=_OURS)
        speech.plot(at, at, color=_THEIRS, linewidth=1, linestyle="--", label="real time")
        memory = speech.twinx()
        values = [window["gateway_memory_mib"] for window in windows]
        memory.plot(at, values, "s:", color=_THEIRS, label="memory, MiB")
        memory.set_ylim(0, 2.5 * max([*values, 1]))
        memory.legend(loc="lower right")
    else:
        at = [float(row["variant"]) for row in rows]
        alone = [row["rounds"][0]["alone"]["first_audible_ms"]["p50"] for row in rows]
        firsts.plot(at, alone, "s:", color=_THEIRS, label="alone, p50")
        for number, level in enumerate(result["settings"]["levels"]):
            windows = [windows_of(row)[number] for row in rows]
            shade = {"color": _OURS, "alpha": 1 - 0.4 * number}
            values = [window["first_audible_ms"]["p50"] for window in windows]
            firsts.plot(at, values, "o-", label=f"{level} streams, p50", **shade)
            values = [window["audio_seconds_per_second"] for window in windows]
            speech.plot(at, values, "o-", label=f"{level} streams", **shade)
    for axes, title in ((firsts, "first audible, ms"), (speech, "speech a second, s")):
        axes.set(xlabel=name, title=title)
        axes.grid(alpha=0.3)
        axes.legend()
    firsts.set_yscale("log")
    _save(figure, path)


def plot_peers(result: dict[str, Any], path: Path) -> None:
    """First audible p50 against streams of every server, up to where it breaks."""
    figure, (firsts, shares) = _figure(2)
    for row in result["rows"]:
        windows = [window for each in row["rounds"][:1] for window in each["windows"]]
        at = [window["streams"] for window in windows]
        style = "o-" if row["variant"] == "Voxgate" else "o--"
        values = [window["first_audible_ms"]["p50"] for window in windows]
        firsts.plot(at, values, style, label=row["variant"])
        values = [window["audio_seconds_per_second"] for window in windows]
        shares.plot(at, values, style, label=row["variant"])
    firsts.set(xlabel="streams", title="first audible p50, ms", yscale="log")
    shares.set(xlabel="streams", title="speech a second, s")
    for axes in (firsts, shares):
        axes.grid(alpha=0.3)
    firsts.legend(fontsize="small")
    _save(figure, path)


def plot_quantisation(result: dict[str, Any], path: Path) -> None:
    """Speed at 16 streams against agreement with float32."""
    figure, (speed, agreement) = _figure(2)
    rows = [row for row in result["rows"] if row["rounds"]][::-1]
    names = [row["variant"] for row in rows]
    rates = [row["rounds"][0]["frames_per_second"]["16"]["p50"] for row in rows]
    same = [100 * row["rounds"][0]["agreement"]["codes"] for row in rows]
    speed.barh(names, rates, color=_OURS)
    speed.set(title="frames/s at 16 streams")
    agreement.barh(names, same, color=_OURS)
    agreement.set(title="same codes as float32, %", xlim=(min([*same, 90.0]) - 2, 100))
    agreement.set_yticklabels([])
    for axes in (speed, agreement):
        axes.grid(alpha=0.3, axis="x")
    _save(figure, path)


def plot_gpu_fleet(result: dict[str, Any], path: Path) -> None:
    """Gapless share and first audio against listeners, a line for each fleet."""
    figure, (shares, firsts) = _figure(2)
    kinds = sorted({(row["gpus"], row["engines"]) for row in result["rows"]})
    for gpus, engines in kinds:
        rows = [r for r in result["rows"] if (r["gpus"], r["engines"]) == (gpus, engines)]
        at = [row["streams"] for row in rows]
        label = f"{engines} engines, {gpus} GPUs"
        shares.plot(at, [100 * row["gapless_share"] for row in rows], "o-", label=label)
        firsts.plot(at, [row["first_audio_ms"]["p99"] for row in rows], "o-", label=label)
    shares.set(xlabel="listeners", title="gapless, %", ylim=(-3, 103))
    firsts.set(xlabel="listeners", title="first audio p99, ms", yscale="log")
    for axes in (shares, firsts):
        axes.grid(alpha=0.3)
    shares.legend()
    _save(figure, path)


PLOTS: dict[str, Callable[[dict[str, Any], Path], None]] = {
    "gpu": plot_gpu,
    "capacity": plot_capacity,
    "load": plot_load,
    "features": plot_features,
    "sweep": plot_sweep,
    "peers": plot_peers,
    "quantisation": plot_quantisation,
    "gpu-fleet": plot_gpu_fleet,
}
"""By the `kind` a result carries."""
