"""Grouped residual finite scalar quantisation (arXiv 2309.15505): features <-> codes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.codec.blocks import Dense
from engine.codec.config import QuantizerConfig

OVERDRIVE = 1e-3
"""How far `stage` squashing reaches beyond the outermost level, so that tanh can get there."""


class Quantizer(nn.Module):
    """Features (rows, dim) <-> codes (rows, groups * residual).

    `enter` may be absent (a decoder alone cannot encode).
    """

    grid: Tensor
    tables: Tensor | None

    def __init__(self, config: QuantizerConfig, *, encodes: bool) -> None:
        super().__init__()
        self.config = config
        width, digits = config.dim // config.groups, len(config.levels)
        self.enter = nn.ModuleList(
            Dense(width, digits) for _ in range(config.groups if encodes else 0)
        )
        self.leave = nn.ModuleList(Dense(digits, width) for _ in range(config.groups))
        levels = torch.tensor(config.levels)
        self._levels = levels
        self._basis = torch.cumprod(torch.tensor((1, *config.levels[:-1])), 0)
        half = (levels - 1) // 2
        ids = torch.arange(config.codebook_size)[:, None]
        grid = ((ids // self._basis) % levels - half) / half
        self.register_buffer("grid", grid, persistent=False)
        self.register_buffer("tables", None, persistent=False)

    def _fineness(self, stage: int) -> Tensor:
        """(digits,) grid spacing of a residual stage relative to the first."""
        base = self._levels if self.config.finer == "level" else self._levels - 1
        return base.float() ** -stage

    def tabulate(self) -> None:
        """Precompute every code's contribution, so that decoding is a table look-up.

        The groups' projections are linear: one (codebooks * codebook_size, dim) table, zero outside
        the group of the code, with the bias in its first stage.
        """
        config = self.config
        width = config.dim // config.groups
        rows = []
        for group in range(config.groups):
            leave = self.leave[group]
            assert isinstance(leave, Dense)
            for stage in range(config.residual):
                digits = self.grid * self._fineness(stage).to(self.grid.device)
                part = F.linear(digits, leave.weight, leave.bias if stage == 0 else None)
                before, after = group * width, config.dim - (group + 1) * width
                rows.append(F.pad(part, (before, after)))
        self.tables = torch.stack(rows).detach()

    def embed(self, codes: Tensor) -> Tensor:
        """Codes (rows, codebooks) int64 -> features (rows, dim)."""
        if self.tables is None:
            self.tabulate()
        assert self.tables is not None
        size = self.config.codebook_size
        offsets = torch.arange(self.config.codebooks, device=codes.device) * size
        flat = self.tables.flatten(0, 1)
        return F.embedding_bag(codes + offsets, flat, mode="sum")

    def encode(self, features: Tensor) -> Tensor:
        """Features (rows, dim) -> codes (rows, codebooks) int64."""
        config = self.config
        half = ((self._levels - 1) // 2).to(features)
        basis = self._basis.to(features.device)
        codes = []
        for enter, part in zip(self.enter, features.chunk(config.groups, -1), strict=True):
            residual = self._bound(enter(part).float(), half)
            for stage in range(config.residual):
                fineness = self._fineness(stage).to(features)
                digits = self._round(residual / fineness, half)
                codes.append(((digits + half).long() * basis).sum(-1))
                residual = residual - digits / half * fineness
        return torch.stack(codes, -1)

    def _bound(self, z: Tensor, half: Tensor) -> Tensor:
        """What happens to a projected value once, before the first stage."""
        if self.config.squash == "stage":
            return torch.tanh(z) * (half * (1 + OVERDRIVE))
        if self.config.squash == "once":
            return torch.tanh(z)
        reach = 1 + 1 / (2 * half)
        return torch.tanh(z / reach) * reach

    def _round(self, z: Tensor, half: Tensor) -> Tensor:
        """Nearest digit (-half..half) of a value on the grid of a stage."""
        if self.config.squash == "stage":
            return torch.round(torch.tanh(z) * (half * (1 + OVERDRIVE)))
        clamped = z.clamp(-1, 1) * half
        if self.config.squash == "soft":
            return torch.floor(clamped + 0.5)
        return torch.round(clamped)
