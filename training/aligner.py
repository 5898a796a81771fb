"""Train the aligner of word times: `python -m training.aligner AUDIO OUT --held HELD`.

AUDIO holds encoded teacher speech whose teachers told when they say each phoneme
(`training.generate`, `training.frame_store`). The network hears the codes the language model draws
and tells which phoneme each frame says; `engine.align` runs it beside the codec. HELD is encoded
speech of held-out sentences, on which the times of phonemes are checked. Writes
OUT/aligner.safetensors and `losses.csv`.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn
from tqdm import tqdm

from engine.align.monotonic import MonotonicPath
from engine.align.network import AHEAD, EPSILON, KERNEL, AlignmentNetwork
from engine.align.piece import SILENCE
from engine.frontend.phonemes import Alphabet
from training import loss_log
from training.audio_store import read_shard
from training.frame_labels import NOT_LABELLED, frame_labels
from training.frame_store import SAMPLES_PER_FRAME
from training.onset import LEAD

CLASSES = 178
LEVELS, DIGITS = 5, 4
"""Of one code of the codec's finite scalar quantiser."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Of one run."""

    width: int = 96
    inner: int = 192
    batch: int = 256
    frames: int = 160
    rate: float = 3e-3
    dropout: float = 0.1
    noise: float = 0.05
    """Share of the frames whose codes are replaced by random ones."""
    sampled: tuple[int, ...] = (0, 2)
    seed: int = 3


class Block(nn.Module):
    """One residual convolution; parameters as `engine.align.network` reads them."""

    def __init__(self, width: int, inner: int, ahead: int, dropout: float) -> None:
        super().__init__()
        self.taps = nn.Parameter(torch.randn(KERNEL, width) / KERNEL**0.5)
        self.bias = nn.Parameter(torch.zeros(width))
        self.gain = nn.Parameter(torch.ones(width))
        self.widen = nn.Parameter(torch.randn(width, inner) / width**0.5)
        self.widen_bias = nn.Parameter(torch.zeros(inner))
        self.narrow = nn.Parameter(torch.randn(inner, width) * 0.3 / inner**0.5)
        self.narrow_bias = nn.Parameter(torch.zeros(width))
        self._pads = (KERNEL - 1 - ahead, ahead)
        self._dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, frames, width) -> the same."""
        taps = self.taps.t()[:, None]
        padded = F.pad(x.transpose(1, 2), self._pads)
        y = F.conv1d(padded, taps, self.bias, groups=x.shape[-1]).transpose(1, 2)
        y = y * self.gain * torch.rsqrt((y * y).mean(-1, keepdim=True) + EPSILON)
        wide = self._dropout(F.relu(y @ self.widen + self.widen_bias))
        return x + wide @ self.narrow + self.narrow_bias  # type: ignore[no-any-return]


class AlignerNet(nn.Module):
    """Codes (batch, frames, codebooks) -> scores (batch, frames, classes)."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        books = len(settings.sampled)
        self.digits = nn.Parameter(torch.randn(books, DIGITS, LEVELS, settings.width) * 0.3)
        self.embed_bias = nn.Parameter(torch.zeros(settings.width))
        self.blocks = nn.ModuleList(
            Block(settings.width, settings.inner, ahead, settings.dropout) for ahead in AHEAD
        )
        self.out = nn.Parameter(torch.randn(settings.width, CLASSES) / settings.width**0.5)
        self.out_bias = nn.Parameter(torch.zeros(CLASSES))
        ids = torch.arange(LEVELS**DIGITS)[:, None] // LEVELS ** torch.arange(DIGITS) % LEVELS
        self.register_buffer("ids", ids, persistent=False)

    def tables(self) -> Tensor:
        """(codebooks, codes, width): what each code adds, from its digits."""
        digits = torch.arange(DIGITS, device=self.digits.device)
        return self.digits[:, digits, self.get_buffer("ids")].sum(2)

    def forward(self, codes: Tensor) -> Tensor:
        tables = self.tables()
        x = self.embed_bias + sum(
            F.embedding(codes[..., book], tables[book]) for book in range(len(tables))
        )
        for block in self.blocks:
            x = block(x)
        return x @ self.out + self.out_bias

    def exported(self) -> dict[str, Tensor]:
        """Tensors as `engine.align.network.AlignmentNetwork` takes them."""
        state = {k: v for k, v in self.state_dict().items() if k != "digits"}
        return {
            name: value.half().cpu().contiguous()
            for name, value in {**state, "embed": self.tables().detach()}.items()
        }


class Labelled:
    """Codes and labels of all speech in a folder, on one device."""

    def __init__(self, folder: Path, alphabet: Alphabet, settings: Settings) -> None:
        codes, labels, starts, counts = [], [], [], []
        at = 0
        for lines in sorted(folder.glob("*.jsonl")):
            stored = np.load(lines.with_suffix(".codes.npy"))[:, settings.sampled]
            own = 0
            for utterance in read_shard(lines):
                frames = -(-utterance.samples // SAMPLES_PER_FRAME)
                if own + frames > len(stored):
                    break
                stored[own] = [LEAD[i] for i in settings.sampled]
                labels.append(frame_labels(utterance, alphabet))
                starts.append(at + own)
                counts.append(frames)
                own += frames
            codes.append(stored[:own])
            at += own
        edge = np.full((settings.frames, len(settings.sampled)), 0, np.int16)
        self.codes = torch.from_numpy(np.concatenate([*codes, edge]))
        silence = np.full(settings.frames, NOT_LABELLED, np.int16)
        self.labels = torch.from_numpy(np.concatenate([*labels, silence]))
        self.starts, self.counts = torch.tensor(starts), torch.tensor(counts)

    def to(self, device: torch.device) -> Labelled:
        for name in ("codes", "labels", "starts", "counts"):
            setattr(self, name, getattr(self, name).to(device))
        return self

    def draw(self, batch: int, frames: int) -> tuple[Tensor, Tensor]:
        """Codes (batch, frames, codebooks) and labels (batch, frames) of stretches of utterances,
        each by itself: what is beyond its end is not labelled."""
        device = self.codes.device
        chosen = torch.multinomial(self.counts.float(), batch, replacement=True)
        room = (self.counts[chosen] - frames // 2).clamp(min=1)
        offset = (torch.rand(batch, device=device) * room).long()
        steps = torch.arange(frames, device=device)
        at = (self.starts[chosen] + offset)[:, None] + steps
        inside = offset[:, None] + steps < self.counts[chosen][:, None]
        labels = torch.where(inside, self.labels[at].long(), NOT_LABELLED)
        return self.codes[at].long(), labels


def train(audio: Path, out: Path, settings: Settings, seconds: float, device: torch.device) -> None:
    """One run; the network is small enough never to need resuming."""
    torch.manual_seed(settings.seed)
    out.mkdir(parents=True, exist_ok=True)
    speech = Labelled(audio, Alphabet.embedded(), settings).to(device)
    model = AlignerNet(settings).to(device)
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=settings.rate, weight_decay=0.01, fused=device.type == "cuda"
    )
    began, step = time.monotonic(), 0
    gathered: list[Tensor] = []
    with tqdm(total=seconds, unit="s", bar_format="{l_bar}{bar}| {n:.0f} s{postfix}") as bar:
        while (spent := time.monotonic() - began) < seconds:
            cosine = 0.5 * (1 + math.cos(math.pi * spent / seconds))
            for group in optimiser.param_groups:
                group["lr"] = settings.rate * min(1.0, (step + 1) / 200) * max(0.01, cosine)
            codes, labels = speech.draw(settings.batch, settings.frames)
            hit = torch.rand(codes.shape[:2], device=device)[..., None] < settings.noise
            codes = torch.where(hit, torch.randint_like(codes, LEVELS**DIGITS), codes)
            scores = model(codes)
            loss = F.cross_entropy(
                scores.flatten(0, 1), labels.flatten(), ignore_index=NOT_LABELLED
            )
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            step += 1
            gathered.append(loss.detach())
            if step % 200 == 0:
                mean = torch.stack(gathered).mean().item()
                gathered = []
                loss_log.append(out, {"step": step, "seconds": spent, "loss": mean}, digits=4)
                bar.update(spent - bar.n)
                bar.set_postfix_str(f"step {step} loss {mean:.3f}")
    save_file(model.exported(), out / "aligner.safetensors")


def errors_on(held: Path, weights: Path, settings: Settings) -> list[float]:
    """Distances (ms) of phonemes' beginnings from where the teacher says them."""
    network = AlignmentNetwork.load(weights)
    alphabet = Alphabet.embedded()
    found: list[float] = []
    for lines in sorted(held.glob("*.jsonl")):
        stored = np.load(lines.with_suffix(".codes.npy"))[:, settings.sampled]
        at = 0
        for utterance in read_shard(lines):
            frames = -(-utterance.samples // SAMPLES_PER_FRAME)
            own, at = stored[at : at + frames], at + frames
            own[0] = [LEAD[i] for i in settings.sampled]
            path = MonotonicPath([SILENCE, *alphabet.encode(utterance.phonemes)])
            path.push(network(own))
            edges = path.edges(ended=True)[1:] * SAMPLES_PER_FRAME
            if len(edges) != len(utterance.edges):
                continue
            found += (np.abs(edges - np.array(utterance.edges))[1:-1] / 24).tolist()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("audio", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--held", type=Path, help="held-out encoded speech")
    parser.add_argument("--seconds", type=float, default=60.0)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    settings = Settings()
    train(args.audio, args.out, settings, args.seconds, device)
    if args.held:
        found = errors_on(args.held, args.out / "aligner.safetensors", settings)
        shares = np.percentile(found, [50, 90])
        print(f"{len(found)} phonemes: half within {shares[0]:.0f} ms, 90% within {shares[1]:.0f}")


if __name__ == "__main__":
    main()
