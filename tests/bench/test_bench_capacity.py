from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bench.capacity import largest_passing


@given(st.integers(0, 80), st.integers(1, 20), st.integers(1, 10), st.integers(1, 64))
async def test_finds_the_largest_that_passes(
    capacity: int, first: int, step: int, limit: int
) -> None:
    tried: list[int] = []

    async def passes(streams: int) -> bool:
        tried.append(streams)
        return streams <= capacity

    found = await largest_passing(first, step, limit, passes)
    assert found == (min(capacity, limit) if min(first, limit) <= capacity else 0)
    assert len(tried) == len(set(tried))
    assert max(tried) <= limit
