"""Train the phoneme recogniser: `python -m training.recogniser_training AUDIO OUT --held HELD`.

AUDIO holds teacher speech (`training.generate`), HELD teacher speech of held-out sentences, on
which the recogniser's own error is told. Learns what was said by CTC and when by the times the
teachers tell. Writes OUT/ctc_phoneme_fp16.safetensors, `losses.csv` and `held.json`.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn
from tqdm import tqdm

from engine.frontend.phonemes import Alphabet
from training import loss_log
from training.audio_store import SAMPLE_RATE, Utterance, read_shard
from training.frame_labels import NOT_LABELLED, frame_labels
from training.recogniser import (
    BLANK,
    SAMPLES_PER_STEP,
    PhonemeRecogniser,
    heard_symbols,
    segments,
)
from training.scoring import Errors


@dataclass(frozen=True, slots=True)
class Settings:
    """Of one run."""

    samples: int = 1_500_000
    """Of audio a step, padding counted in."""
    rate: float = 8e-4
    warm_up: int = 300
    when_weight: float = 0.5
    """Of the loss of when against that of what."""
    gain: float = 0.5
    """Spread of a constant added to the log-mel of an utterance."""
    noise: float = 0.3
    """Of noise added to the log-mel, at most."""
    seed: int = 4


@dataclass(frozen=True, slots=True)
class Item:
    """One utterance: where its audio is, what is heard and the label of every frame."""

    start: int
    samples: int
    heard: list[int]
    labels: npt.NDArray[np.int16]


class Speech:
    """All utterances of a folder, audio on one device; as many of each voice and language."""

    def __init__(self, folder: Path, device: torch.device, seed: int) -> None:
        alphabet = Alphabet.embedded()
        groups: dict[tuple[str, str], list[Item]] = {}
        audio: list[npt.NDArray[np.int16]] = []
        at = 0
        for lines in sorted(folder.glob("*.jsonl")):
            pcm = np.fromfile(lines.with_suffix(".pcm"), "<i2")
            for utterance in read_shard(lines):
                heard = alphabet.encode(heard_symbols(utterance.phonemes))
                if not heard or len(heard) > 0.8 * utterance.samples / SAMPLES_PER_STEP:
                    continue
                item = Item(
                    at + utterance.start,
                    utterance.samples,
                    heard,
                    frame_labels(utterance, alphabet),
                )
                groups.setdefault((utterance.voice, utterance.language), []).append(item)
            audio.append(pcm)
            at += len(pcm)
        if not groups:
            raise FileNotFoundError(f"{folder} holds no speech")
        draw = random.Random(seed)
        largest = sorted(map(len, groups.values()))[len(groups) // 2]
        self.items = [
            item
            for group in groups.values()
            for item in draw.sample(group, min(len(group), largest))
        ]
        self.items.sort(key=lambda item: item.samples)
        self.audio = torch.from_numpy(np.concatenate(audio)).to(device)
        self._draw = draw

    def batches(self, samples: int) -> Iterator[list[Item]]:
        """Endless lots of like-long utterances."""
        while True:
            first = self._draw.randrange(len(self.items))
            count = max(1, min(128, samples // self.items[first].samples, len(self.items)))
            first = min(first, len(self.items) - count)
            yield self.items[first : first + count]

    def waves(self, items: list[Item]) -> Tensor:
        """(batch, samples) of whole steps, in [-1, 1]."""
        device = self.audio.device
        steps = -(-max(item.samples for item in items) // SAMPLES_PER_STEP)
        span = torch.arange(steps * SAMPLES_PER_STEP, device=device)
        starts = torch.tensor([item.start for item in items], device=device)
        lengths = torch.tensor([item.samples for item in items], device=device)
        at = (starts[:, None] + span).clamp(max=len(self.audio) - 1)
        return self.audio[at].float() / 32768 * (span < lengths[:, None])


def loss_of(
    model: PhonemeRecogniser, speech: Speech, items: list[Item], settings: Settings
) -> Tensor:
    waves = speech.waves(items)
    device = waves.device
    mel = model.mel(waves)
    mel = mel + torch.randn(len(mel), 1, 1, device=device) * settings.gain
    loudness = torch.rand(len(mel), 1, 1, device=device)
    mel = mel + torch.randn_like(mel) * loudness * settings.noise
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        features = model.features(mel)
        what, when = model.o(features).float(), model.said(features).float()
    steps = torch.tensor([len(item.labels) for item in items], device=device)
    targets = torch.tensor([i for item in items for i in item.heard], device=device)
    lengths = torch.tensor([len(item.heard) for item in items], device=device)
    heard = F.ctc_loss(
        what.log_softmax(-1).transpose(0, 1), targets, steps, lengths, BLANK, zero_infinity=True
    )
    labels = np.full(when.shape[:2], NOT_LABELLED, np.int16)
    for row, item in zip(labels, items, strict=True):
        row[: len(item.labels)] = item.labels
    told = torch.from_numpy(labels).long().to(device)
    if bool((labels == NOT_LABELLED).all()):
        return heard
    at = F.cross_entropy(when.flatten(0, 1), told.flatten(), ignore_index=NOT_LABELLED)
    return heard + settings.when_weight * at


def train(
    audio: Path, out: Path, settings: Settings, seconds: float, device: torch.device
) -> PhonemeRecogniser:
    """One run of so many seconds."""
    torch.manual_seed(settings.seed)
    out.mkdir(parents=True, exist_ok=True)
    speech = Speech(audio, device, settings.seed)
    model = PhonemeRecogniser().to(device).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=settings.rate, weight_decay=0.01)
    began, step = time.monotonic(), 0
    gathered: list[Tensor] = []
    lots = speech.batches(settings.samples)
    with tqdm(total=seconds, unit="s", bar_format="{l_bar}{bar}| {n:.0f} s{postfix}") as bar:
        while (spent := time.monotonic() - began) < seconds:
            cosine = 0.5 * (1 + math.cos(math.pi * spent / seconds))
            for group in optimiser.param_groups:
                warm = min(1.0, (step + 1) / settings.warm_up)
                group["lr"] = settings.rate * warm * max(0.02, cosine)
            loss = loss_of(model, speech, next(lots), settings)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            step += 1
            gathered.append(loss.detach())
            if step % 100 == 0:
                mean = torch.stack(gathered).mean().item()
                gathered = []
                loss_log.append(out, {"step": step, "seconds": spent, "loss": mean}, digits=4)
                bar.update(spent - bar.n)
                bar.set_postfix_str(f"step {step} loss {mean:.3f}")
    weights = {k: v.half().cpu().contiguous() for k, v in model.state_dict().items()}
    save_file(weights, out / "ctc_phoneme_fp16.safetensors")
    return model.eval().cpu()


def own_error(model: PhonemeRecogniser, held: Path) -> dict[str, dict[str, float]]:
    """Of held-out teacher speech, by voice and language: phoneme error in percent, with and without
    tones, and how far (ms, median) phonemes are found from where the teacher says them."""
    what: dict[str, tuple[Errors, Errors]] = {}
    when: dict[str, list[float]] = {}
    for lines in sorted(held.glob("*.jsonl")):
        pcm = np.fromfile(lines.with_suffix(".pcm"), "<i2").astype(np.float32)
        pcm *= np.float32(2**-15)
        for utterance in read_shard(lines):
            name = f"{utterance.voice} {utterance.language}"
            wave = pcm[utterance.start : utterance.start + utterance.samples]
            said, heard = heard_symbols(utterance.phonemes), model.heard(wave)
            toned, toneless = what.setdefault(name, (Errors(), Errors()))
            toned.add(said, heard)
            toneless.add(segments(said), segments(heard))
            when.setdefault(name, []).extend(_distances(model, wave, utterance))
    return {
        name: {
            "phone_error": toned.percent,
            "phone_error_toneless": toneless.percent,
            "median_ms": float(np.median(when[name])) if when[name] else math.nan,
        }
        for name, (toned, toneless) in what.items()
    }


def _distances(
    model: PhonemeRecogniser, wave: npt.NDArray[np.float32], utterance: Utterance
) -> list[float]:
    found = model.edges(wave, utterance.phonemes)
    if len(utterance.edges) != len(found):
        return []
    told = np.array(utterance.edges)
    return (np.abs(found - told)[:-1] / SAMPLE_RATE * 1000).tolist()  # type: ignore[no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("audio", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--held", type=Path, help="held-out teacher speech")
    parser.add_argument("--seconds", type=float, default=150.0)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = train(args.audio, args.out, Settings(), args.seconds, device)
    if args.held:
        found = own_error(model, args.held)
        (args.out / "held.json").write_text(json.dumps(found, indent=1), "utf-8")
        for name, numbers in found.items():
            print(name, {k: round(v, 2) for k, v in numbers.items()})


if __name__ == "__main__":
    main()
