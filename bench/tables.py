"""Results as Markdown tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

Result = dict[str, Any]


def load(result: Result) -> str:
    """A `bench.load` result."""
    lines = [
        _streams_table([result]),
        "",
        "| cancel to silence p50 / p99, ms | cancel to free slot, ms | lead p50, s | frames/s"
        " | CPU of a stream, % | memory, MiB | machine hours an hour of speech |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    cpu = result["cpu_seconds_per_audio_second"]
    cells = [
        _parts(result.get("cancel_ms"), "p50", "p99"),
        _number((result.get("slots_freed") or {}).get("mean_ms")),
        _parts(result["lead_s"], "p50"),
        _number(result.get("frames_per_second")),
        _number(None if cpu is None else 100 * cpu),
        _number(result["gateway_memory_mib"]),
        _number(result.get("machine_hours_per_speech_hour")),
    ]
    return "\n".join([*lines, "| " + " | ".join(cells) + " |"])


def capacity(result: Result) -> str:
    """A `bench.capacity` result."""
    share = f"{result['passing_share']:.0%}"
    line = f"At least {share} gapless up to **{result['largest_gapless']} streams**."
    return f"{line}\n\n{_streams_table(result['rows'])}"


def _streams_table(rows: Sequence[Result]) -> str:
    lines = [
        "| streams | gapless | first packet p50 / p99, ms | first audible p50 / p95 / p99, ms"
        " | speech a second, s | CPU a second of speech, s | prefix-cache hits |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        cells = [
            str(row["streams"]),
            f"{row['gapless_share']:.1%}",
            _parts(row["first_packet_ms"], "p50", "p99"),
            _parts(row["first_audible_ms"], "p50", "p95", "p99"),
            _number(row["audio_seconds_per_second"]),
            _number(row["cpu_seconds_per_audio_second"]),
            _hits(row),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def first_audible(result: Result) -> str:
    """A `bench.first_audible` result."""
    lines = [
        "| | first packet p50 / p99, ms | first audible packet p50 / p95 / p99, ms"
        " | first audible sample p50 / p99, ms | sentences |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    names = {"en": "English", "zh": "Mandarin"}
    groups = [("all", result)]
    if len(result["by_language"]) > 1:
        groups += [(names[tongue], part) for tongue, part in result["by_language"].items()]
    for name, part in groups:
        cells = [
            name,
            _parts(part["first_packet_ms"], "p50", "p99"),
            _parts(part["first_audible_ms"], "p50", "p95", "p99"),
            _parts(part["first_sound_ms"], "p50", "p99"),
            str(part["first_audible_ms"]["count"]),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def reference(result: Result) -> str:
    """A `bench.reference` result."""
    lines = [
        "| streams | Voxgate, frames/s | reference, frames/s | ratio | reference serving them one"
        " after another | ratio |",
        "| ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in result["rows"]:
        ratio = row.get("times_one_after_another")
        cells = [
            str(row["streams"]),
            _number(row["engine_frames_per_second"]),
            _number(row["reference_frames_per_second"]),
            f"{row['times_reference']:g}x",
            _number(row.get("reference_one_after_another_frames_per_second")),
            f"{ratio:g}x" if ratio else "",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def gpu(result: Result) -> str:
    """A `bench.gpu` result; what is missing is left blank."""
    lines = [
        "| streams | frames/s | x real time | first audio p50 / p99, ms | reference, frames/s"
        " | ratio | gapless listeners | their first audio p50 / p99, ms | GPU, GiB / % |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in result["rows"]:
        engine, other = row.get("engine", {}), row.get("reference", {})
        heard = row.get("listeners", {})
        used = engine.get("gpu") or {}
        share = heard.get("gapless_share")
        cells = [
            str(row["streams"]),
            _number(engine.get("frames_per_second")),
            _number(engine.get("times_real_time")),
            _parts(engine.get("first_audio_ms"), "p50", "p99"),
            _number(other.get("frames_per_second")),
            f"{row['times_reference']:g}x" if "times_reference" in row else "",
            "" if share is None else f"{share:.1%}",
            _parts(heard.get("first_audio_ms"), "p50", "p99"),
            f"{used['memory_gib']:g} / {used['utilisation_percent']:g}" if used else "",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def features(result: Result) -> str:
    """A `bench.features` result: medians over the rounds."""
    return _variants_table(result, "variant")


def sweep(result: Result) -> str:
    """A `bench.sweep` result."""
    settings = result["settings"]
    if settings["name"] == "streams":
        return _streams_table(windows_of(result["rows"][0]))
    default = settings["default"]
    note = f"\n\nThe default is {default:g}." if default is not None else ""
    return _variants_table(result, settings["name"]) + note


def peers(result: Result) -> str:
    """A `bench.peers` result."""
    lines = [
        "| server | model, MB | first audible alone p50 / p95, ms | gapless streams at once"
        " | first audible p50 / p99 at that, ms | CPU a second of speech, s | word error |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in result["rows"]:
        if not row["rounds"]:
            continue
        rounds = row["rounds"]
        largest = int(median(each["largest"] for each in rounds))
        at = [
            window
            for each in rounds
            for window in each["windows"]
            if window["streams"] == max(largest, 1)
        ]
        window = at[-1]
        error = result.get("word_error", {}).get(row["variant"])
        cells = [
            row["variant"],
            str(rounds[0]["model_mb"]),
            _parts(merged([each["alone"]["first_audible_ms"] for each in rounds]), "p50", "p95"),
            str(largest) if largest else "none",
            _parts(window["first_audible_ms"], "p50", "p99"),
            _number(window["cpu_seconds_per_audio_second"]),
            f"{error['word_error']:.1%}" if error else "",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def quantisation(result: Result) -> str:
    """A `bench.quantisation` result."""
    lines = [
        "| weights and cache | language model, MB | memory, MiB | frames/s at 1 / 16 streams"
        " | same codes as float32 | same frames | word error | DNSMOS |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in result["rows"]:
        name = row["variant"]
        if not row["rounds"]:
            if name in result["errors"]:
                lines.append(f"| {name} | refused by vLLM here | | | | | | |")
            continue
        found, heard = merged(row["rounds"]), result.get("judged", {}).get(name)
        rates = [found["frames_per_second"][streams]["p50"] for streams in ("1", "16")]
        cells = [
            name,
            _number(found["weights_mb"]),
            _number(found["memory_mib"]),
            " / ".join(map(_number, rates)),
            f"{found['agreement']['codes']:.1%}",
            f"{found['agreement']['frames']:.1%}",
            f"{heard['word_error']:.1%}" if heard else "",
            _number(heard["dnsmos"]) if heard else "",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def gpu_table(result: Result) -> str:
    """The `table` part of `bench.gpu_slice`: requests a second, latency, memory, utilisation."""
    lines = [
        "| clients | | requests/s | p50 / p99, ms | GPU, GiB / % | ours over it |",
        "| ---: | --- | ---: | ---: | ---: | ---: |",
    ]
    names = {
        "engine": "Voxgate",
        "reference_batched": "reference, its own batching",
        "reference_one_after_another": "reference, one after another",
    }
    for row in result["rows"]:
        for side, name in names.items():
            if side not in row:
                continue
            found, used = row[side], row[side].get("gpu")
            ratio = row["engine"]["qps"] / found["qps"]
            cells = [
                str(row["clients"]),
                name,
                _number(found["qps"]),
                _parts(found["ms"], "p50", "p99"),
                f"{used['memory_gib']:g} / {used['utilisation_percent']:g}" if used else "",
                "" if side == "engine" else f"{ratio:.3g}x",
            ]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def gpu_variants(result: Result) -> str:
    """Features, sweeps and quantisation of `bench.gpu_slice`."""
    lines = [
        "| variant | frames/s | first audio alone p50, ms | listeners | gapless"
        " | their first audio p50 / p99, ms | GPU, GiB / % |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in result["rows"]:
        heard, used = row["listeners"], row.get("gpu")
        cells = [
            row["variant"],
            _number(row["frames_per_second"]),
            _parts(row["alone"]["first_audio_ms"], "p50"),
            str(heard["streams"]),
            f"{heard['gapless_share']:.1%}",
            _parts(heard["first_audio_ms"], "p50", "p99"),
            f"{used['memory_gib']:g} / {used['utilisation_percent']:g}" if used else "",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    lines += [f"| {name} | does not run | | | | | |" for name in result["errors"]]
    return "\n".join(lines)


def gpu_fleet(result: Result) -> str:
    """Engines on GPUs, of `bench.gpu_slice`."""
    lines = [
        "| engines | GPUs | listeners | gapless | speech a second, s"
        " | first audio p50 / p99, ms | GPU, GiB / % |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in result["rows"]:
        used = row.get("gpu")
        cells = [
            *(str(row[name]) for name in ("engines", "gpus", "streams")),
            f"{row['gapless_share']:.1%}",
            _number(row["audio_seconds_per_second"]),
            _parts(row["first_audio_ms"], "p50", "p99"),
            f"{used['memory_gib']:g} / {used['utilisation_percent']:g}" if used else "",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _variants_table(result: Result, title: str) -> str:
    lines = [
        f"| {title} | first audible alone p50, ms | streams | gapless | first audible p50 / p99, ms"
        " | speech a second, s | CPU a second of speech, s | prefix-cache hits |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in result["rows"]:
        if not row["rounds"]:
            why = "does not run" if row["variant"] in result["errors"] else "not measured yet"
            lines.append(f"| {row['variant']} | {why} | | | | | | |")
            continue
        alone = median(each["alone"]["first_audible_ms"]["p50"] for each in row["rounds"])
        for window in windows_of(row):
            cells = [
                row["variant"],
                _number(alone),
                str(window["streams"]),
                f"{window['gapless_share']:.0%}",
                _parts(window["first_audible_ms"], "p50", "p99"),
                _number(window["audio_seconds_per_second"]),
                _number(window["cpu_seconds_per_audio_second"]),
                _hits(window),
            ]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def overload(result: Result) -> str:
    """A `bench.overload` result."""
    cells = [
        _number(result["users"]),
        _parts(result["capacity"], "min", "p50"),
        _number(result["admitted"]),
        _number(result["gapless"]),
        f"{result['gapless_turns']} of {result['turns']}",
        _parts(result["gaps_ms"], "p50", "p99"),
        f"{result['dry_share']:.2%}",
        _number(result["refusals"]),
    ]
    return "\n".join(
        [
            "| came | room for, least / median | let in | of them without a gap"
            " | turns without a gap | gap p50 / p99, ms | of their time dry | refusals |",
            "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
            "| " + " | ".join(cells) + " |",
        ]
    )


def session_cost(result: Result) -> str:
    """A `bench.session_cost` result."""
    lag = result["loop_lag_ms"]
    cells = [
        _number(result["streams"]),
        _number(result["cpu_percent_per_stream"]),
        _number(result["encoder_percent_per_stream"]),
        _number(lag["longest"]),
        f"{lag['above_20']:.0f} of {lag['looks']:,.0f}",
        _number(lag["above_20_by_own_work"]),
    ]
    return "\n".join(
        [
            "| streams | a session, % of a core | its encoder, % | event loop late at most, ms"
            " | late by over 20 ms | by its own work |",
            "| ---: | ---: | ---: | ---: | ---: | ---: |",
            "| " + " | ".join(cells) + " |",
        ]
    )


def windows_of(row: Result) -> list[Result]:
    """One window a level of streams, medians over the rounds."""
    levels = zip(*(each["windows"] for each in row["rounds"]), strict=True)
    return [merged(windows) for windows in levels]


def merged(windows: Sequence[Any]) -> Any:
    """Medians of results of one shape, number by number; what is no number is the first's."""
    first = windows[0]
    if isinstance(first, dict):
        return {
            name: merged([window[name] for window in windows if name in window]) for name in first
        }
    if all(isinstance(each, int | float) and not isinstance(each, bool) for each in windows):
        return median(windows)
    return first


def _parts(values: dict[str, float | None] | None, *names: str) -> str:
    if not values or values[names[0]] is None:
        return ""
    return " / ".join(_number(values[name]) for name in names)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _hits(row: Result) -> str:
    rate = (row.get("prefix_cache") or {}).get("hit_rate")
    return "" if rate is None else f"{rate:.1%}"


def faults(result: Result) -> str:
    """A result of `make chaos`, without what only its own page has room for."""
    lines = [
        "| fault | sessions | harmed | packets lost or twice | served again, s | memory, MiB"
        " | descriptors |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for each in result["results"]:
        told = f" ({', '.join(each['harmed_codes'])})" if each["harmed_codes"] else ""
        grown = each["memory_growth_mib"], each["descriptor_growth"]
        memory, descriptors = (f"{value:+g}" for value in grown) if any(grown) else ("", "")
        lines.append(
            f"| {each['what']} | {each['sessions']} | {each['harmed']}{told} "
            f"| {each['packets_lost']} of {each['packets']:,} | {each['recovery_seconds']:g} "
            f"| {memory} | {descriptors} |"
        )
    return "\n".join(lines)


TABLES: dict[str, Callable[[Result], str]] = {
    "load": load,
    "capacity": capacity,
    "first_audible": first_audible,
    "reference": reference,
    "gpu": gpu,
    "features": features,
    "sweep": sweep,
    "peers": peers,
    "quantisation": quantisation,
    "gpu-table": gpu_table,
    "gpu-variants": gpu_variants,
    "gpu-fleet": gpu_fleet,
    "overload": overload,
    "session-cost": session_cost,
    "faults": faults,
}
"""By the `kind` a result carries."""
