from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.stats import percentile, rounded, summary

FINITE = st.floats(-1e6, 1e6, allow_nan=False)


@given(st.lists(FINITE, min_size=1, max_size=50), st.floats(0, 1))
def test_percentile_agrees_with_numpy(values: list[float], share: float) -> None:
    expected = float(np.quantile(values, share, method="linear"))
    assert percentile(values, share) == pytest.approx(expected, rel=1e-9, abs=1e-6)


def test_percentile_refuses_what_has_no_answer() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)
    with pytest.raises(ValueError, match="share"):
        percentile([1.0], 1.5)


def test_summary_scales_and_counts() -> None:
    result = summary([0.010, 0.020, 0.030], scale=1000)
    assert result["p50"] == 20
    assert result["max"] == 30
    assert result["count"] == 3


def test_summary_of_nothing_is_not_a_fast_run() -> None:
    result = summary([])
    assert result["count"] == 0
    assert result["p50"] is None
    assert result["p99"] is None


@given(FINITE)
def test_rounding_keeps_four_digits(value: float) -> None:
    assert math.isclose(rounded(value), value, rel_tol=6e-4)
