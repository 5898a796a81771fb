"""Discriminators that judge waveforms: several periods and several spectrum resolutions.

Period discriminators follow HiFi-GAN (arXiv 2010.05646), spectrum discriminators judge complex
STFTs with compressed magnitude as in EnCodec (arXiv 2210.13438); both are smaller than published.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

Judgement = tuple[Tensor, list[Tensor]]
"""Scores (batch, 1, ...) and the feature maps on the way to them."""


class PeriodDiscriminator(nn.Module):
    """Folds the waveform (batch, samples) into rows of `period` samples; convolves along them."""

    def __init__(self, period: int, widths: Sequence[int] = (24, 96, 192, 384, 384)) -> None:
        super().__init__()
        self.period = period
        layers: list[nn.Module] = []
        inputs = 1
        for depth, outputs in enumerate(widths):
            stride = 3 if depth < len(widths) - 1 else 1
            layers.append(
                weight_norm(nn.Conv2d(inputs, outputs, (5, 1), (stride, 1), padding=(2, 0)))
            )
            inputs = outputs
        self.layers = nn.ModuleList(layers)
        self.out = weight_norm(nn.Conv2d(inputs, 1, (3, 1), padding=(1, 0)))

    def forward(self, wave: Tensor) -> Judgement:
        short = -wave.shape[-1] % self.period
        x = F.pad(wave[:, None], (0, short), "reflect")[:, 0] if short else wave
        x = x.reshape(x.shape[0], 1, -1, self.period)
        return _through(self.layers, self.out, x)


class SpectrumDiscriminator(nn.Module):
    """Judges the complex STFT of (batch, samples) at one window length."""

    def __init__(self, n_fft: int, width: int = 48) -> None:
        super().__init__()
        self.n_fft = n_fft
        self.register_buffer("window", torch.hann_window(n_fft), persistent=False)
        shapes = [
            (2, (7, 5), (2, 2), (3, 2)),
            (width, (5, 3), (2, 1), (2, 1)),
            (width, (5, 3), (2, 2), (2, 1)),
            (width, (3, 3), (2, 1), (1, 1)),
            (width, (3, 3), (2, 2), (1, 1)),
        ]
        self.layers = nn.ModuleList(
            weight_norm(nn.Conv2d(inputs, width, kernel, stride, padding=padding))
            for inputs, kernel, stride, padding in shapes
        )
        self.out = weight_norm(nn.Conv2d(width, 1, 3, padding=1))

    def forward(self, wave: Tensor) -> Judgement:
        spectrum = torch.stft(
            wave.float(),
            self.n_fft,
            self.n_fft // 4,
            window=self.get_buffer("window"),
            center=True,
            return_complex=True,
        )
        spectrum = spectrum * spectrum.abs().clamp(min=1e-5).rsqrt()
        return _through(self.layers, self.out, torch.stack([spectrum.real, spectrum.imag], 1))


class Discriminators(nn.Module):
    """All judges of one waveform; 6.4 million parameters."""

    def __init__(
        self,
        periods: Sequence[int] = (2, 3, 5, 7, 11),
        windows: Sequence[int] = (2048, 1024, 512),
    ) -> None:
        super().__init__()
        self.judges = nn.ModuleList(
            [PeriodDiscriminator(period) for period in periods]
            + [SpectrumDiscriminator(n_fft) for n_fft in windows]
        )

    def forward(self, wave: Tensor) -> list[Judgement]:
        return [judge(wave) for judge in self.judges]


def _through(layers: nn.ModuleList, out: nn.Module, x: Tensor) -> Judgement:
    features = []
    for layer in layers:
        x = F.leaky_relu(layer(x), 0.1)
        features.append(x)
    return out(x), features
