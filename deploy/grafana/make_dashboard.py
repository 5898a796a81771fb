"""The Grafana dashboard as code: writes dashboards/voxgate.json.

python deploy/grafana/make_dashboard.py
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parent / "dashboards" / "voxgate.json"
SOURCE = {"type": "prometheus", "uid": "prometheus"}
WHERE = 'job=~"$job", instance=~"$instance"'


def rate(name: str, labels: str = "", by: str = "") -> str:
    inner = f"{WHERE}, {labels}" if labels else WHERE
    return f"sum{f' by ({by}) ' if by else ''}(rate({name}{{{inner}}}[$__rate_interval]))"


def quantile(share: float, name: str) -> str:
    return f"histogram_quantile({share}, {rate(name + '_bucket', by='le')})"


def total(name: str, by: str = "") -> str:
    return f"sum{f' by ({by}) ' if by else ''}({name}{{{WHERE}}})"


Query = tuple[str, str]
# Title, what it says, unit, queries with their legends, limits (yellow, red).
Panel = tuple[str, str, str, list[Query], tuple[float, float] | None]

ROWS: list[tuple[str, list[Panel]]] = [
    (
        "What listeners hear",
        [
            (
                "First audible",
                "From the text of a first piece to its first audible sample.",
                "s",
                [
                    (quantile(0.5, "voxgate_first_audible_seconds"), "p50"),
                    (quantile(0.95, "voxgate_first_audible_seconds"), "p95"),
                    (quantile(0.99, "voxgate_first_audible_seconds"), "p99"),
                ],
                (0.3, 0.5),
            ),
            (
                "Turns that stutter",
                "Underruns of a player with 100 ms in hand, per turn.",
                "percentunit",
                [
                    (
                        f"{rate('voxgate_underruns_total')}"
                        f" / ({rate('voxgate_turns_started_total')} > 0)",
                        "underruns a turn",
                    )
                ],
                (0.01, 0.02),
            ),
            (
                "Audio in hand",
                "Lead of listeners when a packet goes out.",
                "s",
                [
                    (quantile(0.01, "voxgate_lead_seconds"), "p1"),
                    (quantile(0.5, "voxgate_lead_seconds"), "p50"),
                ],
                None,
            ),
            (
                "Turns",
                "By how they ended.",
                "ops",
                [(rate("voxgate_turns_total", by="outcome"), "{{outcome}}")],
                None,
            ),
            (
                "Errors",
                "Told to clients, by code.",
                "ops",
                [(rate("voxgate_errors_total", by="code"), "{{code}}")],
                None,
            ),
            (
                "Dry seconds",
                "Silence of listeners who had text waiting, a second.",
                "s",
                [(rate("voxgate_dry_seconds_total"), "dry")],
                None,
            ),
        ],
    ),
    (
        "Capacity",
        [
            (
                "Admission pressure",
                "Streams asked for over streams that can be carried; at 1 nobody is let in.",
                "percentunit",
                [(f"voxgate_admission_pressure{{{WHERE}}}", "{{instance}}")],
                (0.7, 0.95),
            ),
            (
                "Sessions",
                "Open now.",
                "short",
                [
                    (total("voxgate_sessions"), "sessions"),
                    (total("voxgate_admission_demand"), "demand, streams"),
                    (total("voxgate_admission_capacity"), "capacity, streams"),
                ],
                None,
            ),
            (
                "Sent away",
                "Sessions that were not let in, by code.",
                "ops",
                [(rate("voxgate_sessions_refused_total", by="code"), "{{code}}")],
                None,
            ),
            (
                "Resumed",
                "Sessions that went on over another connection.",
                "ops",
                [(rate("voxgate_sessions_resumed_total"), "resumed")],
                None,
            ),
        ],
    ),
    (
        "Engine",
        [
            (
                "State",
                "1 for the state each engine is in.",
                "short",
                [(f"voxgate_engine_state{{{WHERE}}}", "{{instance}} {{state}}")],
                None,
            ),
            (
                "Pieces",
                "In the engine.",
                "short",
                [
                    (total("voxgate_engine_running"), "running"),
                    (total("voxgate_engine_waiting"), "waiting"),
                    (total("voxgate_engine_decoding"), "decoding"),
                ],
                None,
            ),
            (
                "Speech made",
                "Seconds of audio a second; a frame is 21.3 ms.",
                "short",
                [(f"{rate('voxgate_engine_frames_total')} * 512 / 24000", "x real time")],
                None,
            ),
            (
                "Prefix cache",
                "Share of prompt tokens that were there already.",
                "percentunit",
                [
                    (
                        f"{rate('voxgate_engine_prefix_cache_hits_total')}"
                        f" / {rate('voxgate_engine_prefix_cache_queries_total')}",
                        "hits",
                    ),
                    (f"max(voxgate_engine_kv_cache_usage{{{WHERE}}})", "KV cache in use"),
                ],
                None,
            ),
            (
                "Restarts, preemptions, runaways",
                "In the last ten minutes.",
                "short",
                [
                    (f"sum(increase(voxgate_engine_restarts_total{{{WHERE}}}[10m]))", "restarts"),
                    (
                        f"sum(increase(voxgate_engine_preemptions_total{{{WHERE}}}[10m]))",
                        "preemptions",
                    ),
                    (f"sum(increase(voxgate_runaways_total{{{WHERE}}}[10m]))", "runaways"),
                ],
                None,
            ),
            (
                "Cancel",
                "From the decision to the engine being free of it.",
                "s",
                [
                    (quantile(0.5, "voxgate_cancel_seconds"), "p50"),
                    (quantile(0.99, "voxgate_cancel_seconds"), "p99"),
                ],
                (0.1, 0.2),
            ),
        ],
    ),
    (
        "Process",
        [
            (
                "Event loop",
                "How late it is.",
                "s",
                [
                    (quantile(0.99, "voxgate_loop_lag_seconds"), "p99"),
                    (f"max(voxgate_loop_lag_longest_seconds{{{WHERE}}})", "longest"),
                ],
                (0.02, 0.05),
            ),
            (
                "Memory",
                "Of the gateway's process, without the engine's.",
                "bytes",
                [
                    (f"process_resident_memory_bytes{{{WHERE}}}", "{{instance}}"),
                    (total("voxgate_socket_buffer_bytes"), "unsent"),
                ],
                None,
            ),
            (
                "Descriptors",
                "Open files and sockets.",
                "short",
                [
                    (f"process_open_fds{{{WHERE}}}", "{{instance}}"),
                    (f"max(process_max_fds{{{WHERE}}})", "limit"),
                ],
                None,
            ),
            (
                "Codec and encoder",
                "Cores busy with them.",
                "short",
                [
                    (rate("voxgate_engine_decode_seconds_total"), "decoding"),
                    (rate("voxgate_encode_seconds_total"), "encoding"),
                ],
                None,
            ),
        ],
    ),
]


def panel(number: int, at: tuple[int, int], given: Panel) -> dict[str, Any]:
    title, description, unit, queries, limits = given
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if limits is not None:
        steps += [{"color": "yellow", "value": limits[0]}, {"color": "red", "value": limits[1]}]
    style = {"thresholdsStyle": {"mode": "line" if limits else "off"}, "fillOpacity": 8}
    return {
        "id": number,
        "type": "timeseries",
        "title": title,
        "description": description,
        "datasource": SOURCE,
        "gridPos": {"h": 7, "w": 8, "x": at[0], "y": at[1]},
        "fieldConfig": {
            "defaults": {
                "unit": unit,
                "min": 0,
                "thresholds": {"mode": "absolute", "steps": steps},
                "custom": style,
            },
            "overrides": [],
        },
        "options": {"legend": {"displayMode": "list"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(65 + i), "datasource": SOURCE, "expr": expr, "legendFormat": legend}
            for i, (expr, legend) in enumerate(queries)
        ],
    }


def variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "includeAll": True,
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
        "refresh": 2,
    }


def dashboard() -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    numbers, y = itertools.count(1), 0
    for title, given in ROWS:
        place = {"h": 1, "w": 24, "x": 0, "y": y}
        panels.append({"id": next(numbers), "type": "row", "title": title, "gridPos": place})
        y += 1
        for index, each in enumerate(given):
            at = (8 * (index % 3), y + 7 * (index // 3))
            panels.append(panel(next(numbers), at, each))
        y += 7 * -(-len(given) // 3)
    return {
        "uid": "voxgate",
        "title": "Voxgate",
        "tags": ["voxgate"],
        "schemaVersion": 41,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                variable("job", "label_values(voxgate_sessions, job)"),
                variable("instance", 'label_values(voxgate_sessions{job=~"$job"}, instance)'),
            ]
        },
        "panels": panels,
    }


if __name__ == "__main__":
    TARGET.write_text(json.dumps(dashboard(), indent=1) + "\n")
