"""When things happen to a gateway: users arriving, a language model writing."""

from __future__ import annotations

import random
from collections.abc import Sequence


def poisson_starts(count: int, within: float, rng: random.Random) -> list[float]:
    """`count` start times in seconds of a Poisson process, all inside [0, within].

    Given their number, the arrivals of a Poisson process are uniform order statistics; drawing them
    so bounds the ramp without bending the gaps between users.
    """
    if count < 0 or within < 0:
        raise ValueError("count and within must not be negative")
    return sorted(rng.uniform(0.0, within) for _ in range(count))


def token_times(parts: Sequence[str], rate: float, rng: random.Random) -> list[float]:
    """When each token is written, in seconds from the first, at `rate` tokens a second on average.

    A language model's step is steady with a little jitter: each gap is the mean +- 30%.
    """
    if rate <= 0:
        raise ValueError("rate must be positive")
    times: list[float] = []
    now = 0.0
    for _ in parts:
        times.append(now)
        now += rng.uniform(0.7, 1.3) / rate
    return times
