"""Vocos (arXiv 2306.00814): log-mel rows -> STFT frames -> overlap-added waveform."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from engine.codec.blocks import ConvNeXtBlock, Dense, Norm, TapConv
from engine.codec.config import VocoderConfig
from engine.codec.rows import Context, Counts, Layout, Rows

LOUDEST = 100.0
"""Magnitudes of the spectrum are clipped here, as Vocos does against blow-ups."""


class Vocoder(nn.Module):
    """Mel rows (rows, bands) on the networks' scale -> windowed STFT frames (rows, n_fft)."""

    window: Tensor

    def __init__(self, config: VocoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = TapConv(config.bands, config.dim, config.kernel, causal=config.causal)
        self.norm = Norm(config.dim)
        self.blocks = nn.ModuleList(
            ConvNeXtBlock(config.dim, config.intermediate, config.kernel, 1, causal=config.causal)
            for _ in range(config.layers)
        )
        self.final_norm = Norm(config.dim)
        self.head = Dense(config.dim, config.n_fft + 2)
        self.register_buffer("window", torch.hann_window(config.n_fft), persistent=False)

    def forward(self, mel: Tensor, rows: Layout, context: Context) -> Tensor:
        """Frames of the final rows only: (sum of rows.settled, n_fft)."""
        x = self.norm(self.embed(mel, rows, context))
        for block in self.blocks:
            x = block(x, rows, context)
        magnitude, phase = self.head(self.final_norm(rows.final(x))).float().chunk(2, -1)
        spectrum = torch.polar(magnitude.exp().clamp(max=LOUDEST), phase)
        frames: Tensor = torch.fft.irfft(spectrum, n=self.config.n_fft, dim=-1)
        return frames * self.window


class OverlapAdd:
    """Adds STFT frames up at hop distance and divides by the sum of squared windows.

    Row r of the sum is hop samples long and is complete once frame r is known. A centred STFT drops
    the first half frame (`skipped` rows) and what follows the last frame's centre; `tail` rows
    remain to be given after the last frame.
    """

    def __init__(self, config: VocoderConfig) -> None:
        if config.n_fft % (2 * config.hop):
            raise ValueError("n_fft must be an even number of hops")
        self.hop = config.hop
        self.overlap = config.n_fft // config.hop
        self.kept = self.overlap - 1
        self.kept_width = self.kept * config.n_fft
        self.skipped = self.overlap // 2
        self.tail = self.overlap // 2 - 1 + int(config.silent_tail)
        window = torch.hann_window(config.n_fft, dtype=torch.float64)
        self._energy = window.square().view(self.overlap, self.hop)

    def scale(self, device: torch.device) -> Tensor:
        """(1, hop) factor of a row that every overlapping frame has reached."""
        return (1 / self._energy.sum(0)).float().to(device)[None]

    def add(self, frames: Tensor, rows: Rows, kept: Tensor) -> tuple[Tensor, Tensor]:
        """Frames (rows.total, n_fft) and the kept ones (windows, kept * n_fft) -> sums, kept.

        Sums are (rows.total, hop), not yet divided; kept is for the next window.
        """
        near = rows.neighbours(self.kept, 0)
        spread = near.spread(frames, kept.view(rows.windows, self.kept, -1))
        length = spread.shape[1] - self.kept
        sums = spread[:, :length, -self.hop :]
        for nearer in range(1, self.overlap):
            start = (self.overlap - 1 - nearer) * self.hop
            sums = sums + spread[:, nearer : nearer + length, start : start + self.hop]
        return near.centred(sums), near.keep(spread)

    def energy(self, row: Counts, frames: Counts) -> Tensor:
        """(n, hop) sum of squared windows at `row` of signals of `frames` STFT frames."""
        reaching = row[:, None] - np.arange(self.overlap)
        inside = (reaching >= 0) & (reaching < frames[:, None])
        return torch.from_numpy(inside).double() @ self._energy
