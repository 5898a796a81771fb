"""Percentiles and rounding, the same for every report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0..1) of the sorted values lie, linearly interpolated.

    Raises `ValueError` on no values or a share outside 0..1.
    """
    if not values:
        raise ValueError("percentile of no values")
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"share must lie in 0..1, not {share}")
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def summary(values: Iterable[float], *, scale: float = 1.0) -> dict[str, float | int | None]:
    """`p50`, `p95`, `p99`, `min`, `max`, `mean` and `count`, each times `scale`.

    All but `count` are None when there are no values, so that a run that measured nothing never
    reads as a fast one.
    """
    kept = [value * scale for value in values]
    if not kept:
        names = ("p50", "p95", "p99", "min", "max", "mean")
        return {**dict.fromkeys(names), "count": 0}
    return {
        "p50": rounded(percentile(kept, 0.50)),
        "p95": rounded(percentile(kept, 0.95)),
        "p99": rounded(percentile(kept, 0.99)),
        "min": rounded(min(kept)),
        "max": rounded(max(kept)),
        "mean": rounded(sum(kept) / len(kept)),
        "count": len(kept),
    }


def rounded(value: float, digits: int = 4) -> float:
    """`value` to `digits` significant digits: what a measurement here can bear."""
    if value == 0 or not math.isfinite(value):
        return value
    return round(value, digits - 1 - math.floor(math.log10(abs(value))))
