"""Log-mel spectrogram, as the encoders want it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.codec.config import MelConfig


def _hertz_to_mel(hertz: Tensor) -> Tensor:
    return 2595.0 * torch.log10(1.0 + hertz / 700.0)


def filter_bank(config: MelConfig) -> Tensor:
    """(n_fft / 2 + 1, bands) triangles between band edges equally spaced on the HTK mel scale."""
    nyquist = torch.tensor(config.sample_rate / 2, dtype=torch.float64)
    bins = torch.linspace(0, float(nyquist), config.n_fft // 2 + 1, dtype=torch.float64)
    edges = torch.linspace(0, float(_hertz_to_mel(nyquist)), config.bands + 2, dtype=torch.float64)
    edges = 700.0 * (10.0 ** (edges / 2595.0) - 1.0)
    width = edges[1:] - edges[:-1]
    rising = (bins[:, None] - edges[None, :-2]) / width[:-1]
    falling = (edges[None, 2:] - bins[:, None]) / width[1:]
    return torch.minimum(rising, falling).clamp(min=0).float()


class LogMel(nn.Module):
    """PCM (samples,) -> log-mel (frames, bands); frames are hop samples apart."""

    bank: Tensor
    window: Tensor

    def __init__(self, config: MelConfig) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("bank", filter_bank(config), persistent=False)
        self.register_buffer("window", torch.hann_window(config.n_fft), persistent=False)

    def forward(self, pcm: Tensor) -> Tensor:
        config = self.config
        edge = config.n_fft // 2
        padded = F.pad(pcm[None], (edge, edge), mode=config.edge)[0]
        frames = padded.unfold(0, config.n_fft, config.hop)
        if config.whole_hops:
            frames = frames[:-1]
        magnitude = torch.fft.rfft(frames * self.window, dim=-1).abs()
        return torch.log((magnitude @ self.bank).clamp(min=config.floor))
