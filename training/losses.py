"""Losses of the vocoder. Waveforms are (batch, samples)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from training.discriminators import Judgement

STFT_WINDOWS = (256, 512, 1024, 2048)


def multi_resolution_stft(made: Tensor, true: Tensor) -> Tensor:
    """Log-magnitude distance plus half the relative magnitude distance, over four windows."""
    total = made.new_zeros(())
    for n_fft in STFT_WINDOWS:
        window = torch.hann_window(n_fft, device=made.device)
        a, b = (
            torch.stft(wave, n_fft, n_fft // 4, window=window, center=True, return_complex=True)
            .abs()
            .clamp(min=1e-4)
            for wave in (made, true)
        )
        relative = (a - b).abs().mean() / (b.mean() + 1e-3)
        total = total + (a.log() - b.log()).abs().mean() + 0.5 * relative
    return total / len(STFT_WINDOWS)


def hinge_discriminator(real: list[Judgement], fake: list[Judgement]) -> Tensor:
    terms = [
        F.relu(1 - r.float()).mean() + F.relu(1 + f.float()).mean()
        for (r, _), (f, _) in zip(real, fake, strict=True)
    ]
    return torch.stack(terms).mean()


def hinge_generator(fake: list[Judgement]) -> Tensor:
    return torch.stack([F.relu(1 - score.float()).mean() for score, _ in fake]).mean()


def feature_matching(real: list[Judgement], fake: list[Judgement]) -> Tensor:
    """L1 distance of the judges' features, each relative to the size of the real one."""
    terms = []
    for (_, of_real), (_, of_fake) in zip(real, fake, strict=True):
        for r, f in zip(of_real, of_fake, strict=True):
            size = r.float().abs().mean() + 1e-4
            terms.append((r.float() - f.float()).abs().mean() / size)
    return torch.stack(terms).sum() / len(real)
