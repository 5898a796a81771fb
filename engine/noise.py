"""Noise without state: a hash of (seed, position, codebook, candidate).

What a request draws thus depends on itself alone, not on its neighbours, on how its prompt was
chunked, or on how often it was preempted.
"""

from __future__ import annotations

import torch
from torch import Tensor


def _signed(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


_GOLDEN = _signed(0x9E3779B97F4A7C15)
_MIX_1 = _signed(0xBF58476D1CE4E5B9)
_MIX_2 = _signed(0x94D049BB133111EB)


def mix(z: Tensor) -> Tensor:
    """A bijective scramble of int64 (the finaliser of splitmix64, Steele et al. 2014)."""
    # `>>` is arithmetic on int64: the mask makes it the logical shift the function is defined with.
    z = (z ^ ((z >> 30) & ((1 << 34) - 1))) * _MIX_1
    z = (z ^ ((z >> 27) & ((1 << 37) - 1))) * _MIX_2
    return z ^ ((z >> 31) & ((1 << 33) - 1))


def scramble(seed: int) -> int:
    """Spread seeds over int64: neighbouring seeds must not give shifted copies of one stream."""
    return int(mix(torch.tensor(_signed(seed + _GOLDEN))))


def stream_keys(seed: Tensor, position: Tensor, streams: int) -> Tensor:
    """Noise keys (B, streams) from scrambled seeds (B,) and positions (B,); stream i is the i-th
    drawn codebook."""
    counter = position[:, None] * streams + torch.arange(streams, device=seed.device)
    return mix(seed[:, None] + counter * _GOLDEN)


def gumbel(keys: Tensor, candidates: Tensor) -> Tensor:
    """Standard Gumbel noise (R, K) for candidate ids (R, K) under keys (R,)."""
    bits = (mix(keys[:, None] + candidates * _GOLDEN) >> 41) & ((1 << 23) - 1)
    # 23 bits and a half are exact in float32 and never reach 0 or 1.
    uniform = (bits.to(torch.float32) + 0.5) * 2.0**-23
    return -torch.log(-torch.log(uniform))
