"""What base/autoscaler.yaml does with a recorded load: the curve of replicas, and who is sent away.

    python deploy/kubernetes/replay_hpa.py docs/benchmarks/hpa-load.json --times 12 --stretch 6 \
        --json docs/benchmarks/hpa-replay.json --plot docs/benchmarks/hpa-replay.png

The formula is Kubernetes' own (ceil(replicas * value / target), 10% tolerance, stabilisation
window and policies of `behavior`), every 15 s; targets and behaviour are read from the manifest.
Pressure is demand over the capacity of the replicas that are ready.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
SYNC_SECONDS = 15.0
TOLERANCE = 0.1


@dataclass
class Rule:
    """One direction of `behavior`."""

    window: float
    policies: Sequence[tuple[str, int, float]]
    """Type, value, period."""

    def limit(self, replicas: int, changes: Iterable[tuple[float, int]], now: float) -> int:
        """How many replicas more, or fewer, are allowed now. `changes`: times and sizes."""
        allowed = 0
        for kind, value, period in self.policies:
            recent = sum(size for at, size in changes if now - at < period)
            begin = replicas - recent if recent > 0 else replicas
            most = value if kind == "Pods" else math.ceil(begin * value / 100)
            allowed = max(allowed, most - recent)
        return max(0, allowed)


@dataclass
class Autoscaler:
    """The controller. `step` is called every `SYNC_SECONDS`."""

    least: int
    most: int
    target: float
    up: Rule
    down: Rule
    replicas: int = 0
    _wishes: list[tuple[float, int]] = field(default_factory=list)
    _ups: list[tuple[float, int]] = field(default_factory=list)
    _downs: list[tuple[float, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.replicas = self.replicas or self.least

    def step(self, pressure: float, ready: int, now: float) -> int:
        """The replicas wanted, given the average of the metric over those that are ready."""
        ratio = pressure / self.target
        wish = self.replicas
        if abs(ratio - 1.0) > TOLERANCE:
            wish = math.ceil(ready * ratio)
            # Replicas that do not report yet count as idle when growing.
            if ratio > 1.0 and ready < self.replicas:
                wish = max(self.replicas, math.ceil(pressure * ready / self.target))
        wish = min(self.most, max(self.least, wish))
        self._wishes.append((now, wish))
        window = max(self.up.window, self.down.window)
        self._wishes = [(at, each) for at, each in self._wishes if now - at <= window]
        lowest = min(each for at, each in self._wishes if now - at <= self.up.window)
        highest = max(each for at, each in self._wishes if now - at <= self.down.window)
        wanted = self.replicas
        if lowest > wanted:
            wanted += min(lowest - wanted, self.up.limit(wanted, self._ups, now))
            if wanted != self.replicas:
                self._ups.append((now, wanted - self.replicas))
        elif highest < wanted:
            wanted -= min(wanted - highest, self.down.limit(wanted, self._downs, now))
            if wanted != self.replicas:
                self._downs.append((now, self.replicas - wanted))
        self.replicas = wanted
        return wanted


def read_autoscaler(path: Path) -> Autoscaler:
    """From the manifest; its first metric is pressure."""
    spec = yaml.safe_load(path.read_text())["spec"]
    first = spec["metrics"][0]["pods"]
    assert first["metric"]["name"] == "voxgate_admission_pressure"

    def rule(values: dict[str, Any]) -> Rule:
        policies = [
            (each["type"], each["value"], each["periodSeconds"]) for each in values["policies"]
        ]
        return Rule(values["stabilizationWindowSeconds"], policies)

    return Autoscaler(
        least=spec["minReplicas"],
        most=spec["maxReplicas"],
        target=quantity(first["target"]["averageValue"]),
        up=rule(spec["behavior"]["scaleUp"]),
        down=rule(spec["behavior"]["scaleDown"]),
    )


def quantity(text: str) -> float:
    """A Kubernetes quantity as a number."""
    return float(text[:-1]) / 1000 if text.endswith("m") else float(text)


def replay(
    samples: Sequence[dict[str, float]], scaler: Autoscaler, *, times: float, start_seconds: float
) -> list[dict[str, float]]:
    """The load `times` over. A new replica carries after `start_seconds`."""
    starting: list[float] = []
    ready = scaler.replicas
    curve = []
    next_sync = 0.0
    for sample in samples:
        now = sample["seconds"]
        ready += sum(1 for at in starting if at <= now)
        starting = [at for at in starting if at > now]
        demand = sample["admission_demand"] * times
        capacity = sample["admission_capacity"]
        pressure = demand / (capacity * ready)
        if now >= next_sync:
            next_sync = now + SYNC_SECONDS
            before = scaler.replicas
            wanted = scaler.step(pressure, ready, now)
            starting += [now + start_seconds] * max(0, wanted - before)
            for _ in range(max(0, before - wanted)):
                if starting:
                    starting.pop()
                else:
                    ready -= 1
        carried = min(demand, capacity * ready)
        curve.append(
            {
                "seconds": now,
                "demand": round(demand, 2),
                "replicas": scaler.replicas,
                "ready": ready,
                "pressure": round(pressure, 3),
                "sent_away": round(demand - carried, 2),
            }
        )
    return curve


def summary(curve: Sequence[dict[str, float]]) -> dict[str, float]:
    """Shares are of the sum over all samples."""
    demand = sum(each["demand"] for each in curve)
    return {
        "peak_demand": max(each["demand"] for each in curve),
        "peak_replicas": max(each["replicas"] for each in curve),
        "last_replicas": curve[-1]["replicas"],
        "changes": sum(a["replicas"] != b["replicas"] for a, b in itertools.pairwise(curve)),
        "sent_away_percent": round(100 * sum(each["sent_away"] for each in curve) / demand, 2),
    }


def plot(curve: Sequence[dict[str, float]], capacity: float, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    minutes = [each["seconds"] / 60 for each in curve]
    figure, axis = plt.subplots(figsize=(9, 4))
    axis.plot(minutes, [each["demand"] / capacity for each in curve], label="demand, in replicas")
    axis.step(minutes, [each["replicas"] for each in curve], where="post", label="replicas wanted")
    axis.step(
        minutes, [each["ready"] for each in curve], where="post", label="replicas ready", ls="--"
    )
    axis.set_xlabel("minutes")
    axis.legend()
    axis.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("load", type=Path)
    parser.add_argument("--times", type=float, default=1.0, help="so many times that load")
    parser.add_argument("--stretch", type=float, default=1.0, help="so many times as slow")
    parser.add_argument("--start-seconds", type=float, default=45.0, help="until a pod is ready")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    samples = json.loads(arguments.load.read_text())["samples"]
    for sample in samples:
        sample["seconds"] *= arguments.stretch
    scaler = read_autoscaler(HERE / "base" / "autoscaler.yaml")
    curve = replay(samples, scaler, times=arguments.times, start_seconds=arguments.start_seconds)
    found = summary(curve)
    print(json.dumps(found, indent=1))
    if arguments.json:
        document = {
            "times": arguments.times,
            "stretch": arguments.stretch,
            "start_seconds": arguments.start_seconds,
            "load": arguments.load.name,
            "summary": found,
            "curve": curve,
        }
        arguments.json.write_text(json.dumps(document) + "\n")
    if arguments.plot:
        plot(curve, samples[-1]["admission_capacity"], arguments.plot)


if __name__ == "__main__":
    main()
