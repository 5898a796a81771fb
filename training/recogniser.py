"""A phoneme recogniser trained on the teachers' speech: what was said, tones and all, and when.

It judges Mandarin, for which no small permissive recogniser with tones exists, by what it hears
(CTC), and word times by where it finds known phonemes (a second head, trained on the times that
the teachers tell). It errs on the teachers themselves: read differences, not levels. Trained by
`training.recogniser_training`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from engine.align.monotonic import MonotonicPath
from engine.align.piece import SILENCE
from engine.frontend.phonemes import Alphabet

SAMPLE_RATE, N_FFT, HOP, BANDS = 24_000, 1024, 256, 100
SAMPLES_PER_STEP = 512
BLANK = 178
WIDTH, LAYERS = 320, 8
WEIGHTS = Path(__file__).parent / "resources" / "recogniser.safetensors"
ALPHABET = Path(__file__).parents[1] / "engine" / "voices" / "mini" / "phonemes.json"
UNHEARD = frozenset(';:,.!?—…"()“” ')
TONES = frozenset("↓→↗↘")

Pcm = npt.NDArray[np.float32]


class _Block(nn.Module):
    """ConvNeXt over time."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dw = nn.Conv1d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.p1 = nn.Linear(width, 3 * width)
        self.p2 = nn.Linear(3 * width, width)
        self.gamma = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.dw(x).transpose(1, 2))
        y = self.p2(F.gelu(self.p1(y))) * self.gamma
        out: Tensor = x + y.transpose(1, 2)
        return out


class PhonemeRecogniser(nn.Module):
    """24 kHz audio -> phoneme scores (steps, BLANK + 1), one step for 512 samples."""

    def __init__(self) -> None:
        super().__init__()
        self.c0 = nn.Conv1d(BANDS, WIDTH, 3, padding=1)
        self.c1 = nn.Conv1d(WIDTH, WIDTH, 4, stride=2, padding=1)
        self.b = nn.ModuleList([_Block(WIDTH) for _ in range(LAYERS)])
        self.out = nn.Linear(WIDTH, WIDTH)
        self.o = nn.Linear(WIDTH, BLANK + 1)
        self.said = nn.Linear(WIDTH, BLANK)
        self.register_buffer("bands", _mel_bands(), persistent=False)
        self.register_buffer("window", torch.hann_window(N_FFT), persistent=False)
        alphabet = json.loads(ALPHABET.read_text(encoding="utf-8"))
        self._alphabet = Alphabet(alphabet)
        self._symbols = {number: symbol for symbol, number in alphabet.items()}

    @classmethod
    def load(cls, path: Path = WEIGHTS) -> PhonemeRecogniser:
        model = cls()
        model.load_state_dict(dequantised(load_file(path)))
        return model.eval()

    def mel(self, audio: Tensor) -> Tensor:
        """Audio (batch, samples) -> log-mel (batch, bands, samples / 256)."""
        spectrum = torch.stft(
            audio, N_FFT, HOP, window=self.get_buffer("window"), pad_mode="constant",
            return_complex=True,
        ).abs()[..., :-1]  # fmt: skip
        return torch.log((self.get_buffer("bands").T @ spectrum).clamp(min=1e-5))

    def features(self, mel: Tensor) -> Tensor:
        """Log-mel -> (batch, steps, WIDTH)."""
        x = F.gelu(self.c1(F.gelu(self.c0((mel + 4) / 4))))
        for block in self.b:
            x = block(x)
        features: Tensor = F.gelu(self.out(x.transpose(1, 2)))
        return features

    def forward(self, audio: Tensor) -> Tensor:
        scores: Tensor = self.o(self.features(self.mel(audio)))
        return scores

    @torch.inference_mode()
    def heard(self, pcm: Pcm) -> str:
        """The phonemes heard, without pauses and punctuation."""
        best = self(whole_steps(pcm))[0].argmax(-1).tolist()
        symbols = [
            self._symbols.get(number, "")
            for number, before in zip(best, [BLANK, *best], strict=False)
            if number not in (before, BLANK)
        ]
        return heard_symbols("".join(symbols))

    @torch.inference_mode()
    def edges(self, pcm: Pcm, phonemes: str) -> npt.NDArray[np.int64]:
        """Forced alignment: the samples where the first of the phonemes begins and each ends."""
        path = MonotonicPath([SILENCE, *self._alphabet.encode(phonemes)])
        scores = self.said(self.features(self.mel(whole_steps(pcm))))[0].log_softmax(-1)
        path.push(scores.numpy())
        return path.edges(ended=True)[1:] * SAMPLES_PER_STEP


def whole_steps(pcm: Pcm) -> Tensor:
    """(1, samples), filled up to whole steps with silence."""
    steps = math.ceil(len(pcm) / SAMPLES_PER_STEP)
    audio = torch.zeros(1, max(1, steps) * SAMPLES_PER_STEP)
    audio[0, : len(pcm)] = torch.from_numpy(pcm)
    return audio


def heard_symbols(phonemes: str) -> str:
    """What can be heard of a phoneme string: no spaces, no punctuation."""
    return "".join(c for c in phonemes if c not in UNHEARD)


def segments(phonemes: str) -> str:
    """The string without its tones."""
    return "".join(c for c in phonemes if c not in TONES)


def edit_distance(reference: Sequence[object], heard: Sequence[object]) -> int:
    """Levenshtein distance over items."""
    row = list(range(len(heard) + 1))
    for i, expected in enumerate(reference, 1):
        above, row[0] = row[0], i
        for j, got in enumerate(heard, 1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (expected != got))
    return row[-1]


def dequantised(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Undo `training.pack.quantise`, and the pilot's module names."""
    out = {}
    for name, value in tensors.items():
        if name.endswith(".scale"):
            continue
        scale = tensors.get(f"{name}.scale")
        whole = value.float()
        if scale is not None:
            whole = whole * scale.float().reshape(-1, *[1] * (value.dim() - 1))
        out[name.removeprefix("e.").replace(".dw.c.", ".dw.")] = whole
    return out


def _mel_bands() -> Tensor:
    """HTK mel triangles, (bins, bands), no normalisation."""
    bins = torch.linspace(0, SAMPLE_RATE / 2, N_FFT // 2 + 1)
    top = 2595 * math.log10(1 + SAMPLE_RATE / 2 / 700)
    edges = 700 * (10 ** (torch.linspace(0, top, BANDS + 2) / 2595) - 1)
    slopes = edges[None] - bins[:, None]
    width = edges[1:] - edges[:-1]
    return torch.minimum(-slopes[:, :-2] / width[:-1], slopes[:, 2:] / width[1:]).clamp(min=0)
