"""Adversarial training of decoder and vocoder on frozen codes.

    python -m training.vocoder AUDIO CHECKPOINT OUT --seconds 600

AUDIO is a folder that `training.frame_store` has encoded with CHECKPOINT's encoder. The encoder and
the codes stay as they are, so a better OUT drops in under the same language model. Only the codes
that the language model predicts carry information; the others are fixed, as they are at inference.
OUT gets `state.pt` (resumed from when it is there), `codec_decoder_fp16.safetensors`,
`judges_fp16.safetensors` (small enough to carry to the next run), `losses.csv`, `losses.png` and
`sample-*.wav`.
"""

from __future__ import annotations

import argparse
import math
import time
import wave as wave_file
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from tqdm import tqdm

from engine.codec.model import Codec
from engine.codec.names import gather
from engine.codec.rows import Context, Rows
from training import loss_log
from training.discriminators import Discriminators
from training.frame_store import SAMPLES_PER_FRAME, FrameSegments, load_codec
from training.losses import (
    feature_matching,
    hinge_discriminator,
    hinge_generator,
    multi_resolution_stft,
)

SAMPLE_RATE = 24_000


@dataclass(frozen=True, slots=True)
class Settings:
    """Of one run; `context` frames warm the causal networks up and are not scored."""

    batch: int = 48
    context: int = 12
    scored: int = 36
    tail: int = 2
    starts: int = 4
    """Every so many steps the segments begin utterances and are scored from the first frame."""
    generator_rate: float = 4e-4
    discriminator_rate: float = 4e-4
    lowest_share: float = 0.05
    """Of the learning rate at the end of the cosine."""
    settle_steps: int = 150
    """Steps in which only the new discriminators learn."""
    mel_weight: float = 15.0
    stft_weight: float = 5.0
    decoder_mel_weight: float = 5.0
    average: float = 0.999
    """Decay of the averaged weights that are exported."""
    fixed: dict[int, int] = field(default_factory=lambda: {1: 312, 3: 312})
    seed: int = 2


class Renderer(nn.Module):
    """Codes (batch, frames, codebooks) -> mel (batch, 2 * frames, bands) and waveform."""

    def __init__(self, codec: Codec, batch: int, frames: int) -> None:
        super().__init__()
        if codec.codes is None:
            raise ValueError("the checkpoint has no decoder of codes")
        self.codec = codec
        counts = np.full(batch, frames, np.int64)
        self._rows = Rows(counts, counts, codec.device)
        self._mels = self._rows.doubled()
        self._batch = batch
        self._scale = codec.overlap_add.scale(codec.device)

    def forward(self, codes: Tensor) -> tuple[Tensor, Tensor]:
        codec = self.codec
        width = codec.context_width("codes")
        context = Context(torch.zeros(self._batch, width, device=codes.device))
        mel = codec.mel_rows(codes.flatten(0, 1), "codes", self._rows, self._mels, context)
        frames = codec.vocoder(mel, self._mels, context)
        wave = overlap_add(frames.view(self._batch, -1, frames.shape[-1]), codec, self._scale)
        shift, scale = codec.config.affine
        return mel.view(self._batch, -1, mel.shape[-1]) * scale - shift, wave


class RecordedStep:
    """A training step recorded once and replayed on other inputs of the same shapes.

    Recording does none of the step's work. A recorded step must not wait for the GPU.
    """

    def __init__(
        self, step: Callable[[Tensor, Tensor], dict[str, Tensor]], given: tuple[Tensor, Tensor]
    ) -> None:
        self._given = tuple(t.clone() for t in given)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._losses = step(*self._given)

    def __call__(self, *given: Tensor) -> dict[str, Tensor]:
        for kept, value in zip(self._given, given, strict=True):
            kept.copy_(value)
        self._graph.replay()
        return self._losses


def overlap_add(frames: Tensor, codec: Codec, scale: Tensor) -> Tensor:
    """STFT frames (batch, n, n_fft) -> (batch, n * hop); the last two hops are incomplete.

    scale: of a hop that all its windows have reached (1, hop).
    """
    vocoder = codec.config.vocoder
    length = (frames.shape[1] - 1) * vocoder.hop + vocoder.n_fft
    folded = F.fold(
        frames.transpose(1, 2), (1, length), (1, vocoder.n_fft), stride=(1, vocoder.hop)
    )[:, 0, 0]
    start = vocoder.n_fft // 2
    wave = folded[:, start : start + frames.shape[1] * vocoder.hop]
    wave = F.pad(wave, (0, frames.shape[1] * vocoder.hop - wave.shape[1]))
    return (wave.view(wave.shape[0], -1, vocoder.hop) * scale).flatten(1)


def log_mel(wave: Tensor, codec: Codec) -> Tensor:
    """(batch, samples) -> (batch, frames, bands), as the codec's encoder analyses it."""
    analysis, config = codec.log_mel, codec.config.mel
    assert analysis is not None
    edge = config.n_fft // 2
    windows = F.pad(wave, (edge, edge)).unfold(-1, config.n_fft, config.hop)
    magnitude = torch.fft.rfft(windows * analysis.window, dim=-1).abs()
    return torch.log((magnitude @ analysis.bank).clamp(min=config.floor))


class Trainer:
    """One resumable run."""

    def __init__(
        self,
        audio: Path,
        checkpoint: Path,
        out: Path,
        settings: Settings,
        device: torch.device,
        *,
        judges: Path | None = None,
    ) -> None:
        torch.manual_seed(settings.seed)
        self.settings, self.out, self.device = settings, out, device
        out.mkdir(parents=True, exist_ok=True)
        self.codec = load_codec(checkpoint, device)
        assert self.codec.codes is not None
        self.learned: list[Tensor] = [
            *self.codec.codes.parameters(),
            *self.codec.vocoder.parameters(),
        ]
        for parameter in self.learned:
            parameter.requires_grad_(True)
        self.frames = settings.context + settings.scored + settings.tail
        self.renderer = Renderer(self.codec, settings.batch, self.frames)
        self.judges = Discriminators()
        if judges is not None:
            self.judges.load_state_dict(load_file(judges))
        self.judges.to(device)
        self.generator_step = self._optimiser(self.learned)
        self.judge_step = self._optimiser(self.judges.parameters())
        self.averaged = [p.detach().clone() for p in self.learned]
        self.segments = FrameSegments(audio, device, settings.seed)
        self.recorded: dict[bool, RecordedStep] = {}
        self.step = 0
        state = out / "state.pt"
        if state.exists():
            self._restore(torch.load(state, map_location=device, weights_only=True))

    # -- state -----------------------------------------------------------------------------------

    def save(self) -> None:
        """Write the state to resume from and the averaged weights to use."""
        state: dict[str, Any] = {
            "step": self.step,
            "learned": [p.detach() for p in self.learned],
            "averaged": self.averaged,
            "judges": self.judges.state_dict(),
            "generator_step": self.generator_step.state_dict(),
            "judge_step": self.judge_step.state_dict(),
        }
        partial = self.out / "state.pt.partial"
        torch.save(state, partial)
        partial.replace(self.out / "state.pt")
        live = [p.detach().clone() for p in self.learned]
        self._assign(self.averaged)
        tensors = gather(self.codec, self.codec.config, "mini_decoder")
        save_file(
            {name: t.half().contiguous() for name, t in tensors.items()},
            self.out / "codec_decoder_fp16.safetensors",
        )
        judges = {name: t.half().contiguous() for name, t in self.judges.state_dict().items()}
        save_file(judges, self.out / "judges_fp16.safetensors")
        self._write_samples()
        self._assign(live)

    def _restore(self, state: dict[str, Any]) -> None:
        self.step = state["step"]
        self._assign(state["learned"])
        self.averaged = [p.to(self.device) for p in state["averaged"]]
        self.judges.load_state_dict(state["judges"])
        self.generator_step.load_state_dict(state["generator_step"])
        self.judge_step.load_state_dict(state["judge_step"])

    @torch.no_grad()
    def _assign(self, values: list[Tensor]) -> None:
        for parameter, value in zip(self.learned, values, strict=True):
            parameter.copy_(value)

    @torch.no_grad()
    def _write_samples(self) -> None:
        codes, true = self.segments.draw(self.settings.batch, self.frames)
        _, made = self.renderer(self._fix(codes))
        for index in range(min(3, len(made))):
            pair = torch.cat([true[index], made[index]]).float().cpu().numpy()
            write_wav(self.out / f"sample-{index}.wav", pair)

    # -- a step ----------------------------------------------------------------------------------

    def _optimiser(self, parameters: Iterable[Tensor]) -> torch.optim.AdamW:
        """Its learning rate is a tensor, so that a recorded step follows it."""
        on_gpu = self.device.type == "cuda"
        return torch.optim.AdamW(
            parameters,
            lr=torch.zeros((), device=self.device),
            betas=(0.8, 0.99),
            weight_decay=0.01,
            fused=on_gpu,
            capturable=on_gpu,
        )

    def _fix(self, codes: Tensor) -> Tensor:
        for codebook, code in self.settings.fixed.items():
            codes[..., codebook] = code
        return codes

    def _set_rates(self, share_done: float) -> None:
        cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, share_done)))
        factor = max(self.settings.lowest_share, cosine)
        settling = self.step < self.settings.settle_steps
        for group in self.generator_step.param_groups:
            group["lr"].fill_(0.0 if settling else self.settings.generator_rate * factor)
        for group in self.judge_step.param_groups:
            group["lr"].fill_(self.settings.discriminator_rate * factor)

    def train_step(self, share_done: float) -> dict[str, Tensor]:
        """One step of the judges and one of the decoder; returns the losses, which the next step
        may overwrite."""
        settings = self.settings
        self._set_rates(share_done)
        begins = self.step % settings.starts == 0
        codes, wave = self.segments.draw(settings.batch, self.frames, from_start=begins)
        self._fix(codes)
        step = self.recorded.get(begins) or partial(self._learn, begins=begins)
        losses = step(codes, wave)
        self.step += 1
        self._average()
        return losses

    def record(self) -> None:
        """Record both kinds of step as CUDA graphs: launched one by one, their some thousand small
        kernels take several times as long as they run."""
        stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            for _ in range(2 * self.settings.starts):
                self.train_step(0.0)
        torch.cuda.current_stream(self.device).wait_stream(stream)
        recorded = {}
        for begins in (True, False):
            given = self.segments.draw(self.settings.batch, self.frames, from_start=begins)
            recorded[begins] = RecordedStep(partial(self._learn, begins=begins), given)
        self.recorded = recorded

    def _learn(self, codes: Tensor, wave: Tensor, begins: bool) -> dict[str, Tensor]:
        settings, codec = self.settings, self.codec
        half = torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda")
        with half:
            mel, made = self.renderer(codes)
        unscored = 0 if begins else settings.context
        first = unscored * SAMPLES_PER_FRAME
        last = first + settings.scored * SAMPLES_PER_FRAME
        made, true = made[:, first:last].float(), wave[:, first:last]

        with half:
            real, fake = self.judges(true), self.judges(made.detach())
        judged = hinge_discriminator(real, fake)
        self.judge_step.zero_grad(set_to_none=True)
        judged.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.judges.parameters(), 5.0)
        self.judge_step.step()

        self.judges.requires_grad_(False)
        with half:
            with torch.no_grad():
                real = self.judges(true)
            fake = self.judges(made)
        self.judges.requires_grad_(True)
        adversarial, features = hinge_generator(fake), feature_matching(real, fake)
        mel_distance = (log_mel(made, codec) - log_mel(true, codec))[:, 2:-2].abs().mean()
        spectral = multi_resolution_stft(made, true)
        true_mel = log_mel(wave, codec)[:, : mel.shape[1]]
        decoder_mel = (mel.float() - true_mel)[:, 2 * unscored : -4].abs().mean()
        loss = (
            settings.mel_weight * mel_distance
            + settings.stft_weight * spectral
            + settings.decoder_mel_weight * decoder_mel
            + adversarial
            + features
        )
        self.generator_step.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.learned, 5.0)
        self.generator_step.step()
        return {
            "mel": mel_distance.detach(),
            "stft": spectral.detach(),
            "decoder_mel": decoder_mel.detach(),
            "judges": judged.detach(),
            "adversarial": adversarial.detach(),
            "features": features.detach(),
        }

    @torch.no_grad()
    def _average(self) -> None:
        if self.step <= self.settings.settle_steps + 500:
            torch._foreach_copy_(self.averaged, self.learned)
        else:
            torch._foreach_lerp_(self.averaged, self.learned, 1 - self.settings.average)

    def run(self, *, seconds: float, planned: float, spent: float) -> None:
        """Train for `seconds`; the learning rate falls over `planned` seconds in all, of which
        `spent` went before."""
        began = time.monotonic()
        next_save = 120.0
        rows: list[dict[str, float]] = []
        gathered: dict[str, list[Tensor]] = {}
        with tqdm(
            total=seconds, unit="s", bar_format="{l_bar}{bar}| {n:.0f}/{total:.0f} s{postfix}"
        ) as bar:
            while (elapsed := time.monotonic() - began) < seconds:
                losses = self.train_step((spent + elapsed) / planned)
                if self.step % 20 == 0:
                    for name, value in losses.items():
                        gathered.setdefault(name, []).append(value.clone())
                if self.step % 200 == 0 and gathered:
                    means = {n: torch.stack(v).mean().item() for n, v in gathered.items()}
                    rows.append({"step": float(self.step), "seconds": spent + elapsed, **means})
                    gathered = {}
                    loss_log.append(self.out, rows[-1], digits=5)
                    bar.set_postfix_str(
                        f"step {self.step} " + " ".join(f"{n} {v:.3f}" for n, v in means.items())
                    )
                    bar.update(elapsed - bar.n)
                if elapsed > next_save:
                    self.save()
                    next_save += 120.0
        self.save()
        plot_losses(self.out)


def write_wav(path: Path, samples: npt.NDArray[np.float32]) -> None:
    """24 kHz mono, 16 bits."""
    with wave_file.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLE_RATE)
        file.writeframes((samples.clip(-1, 1) * 32767).astype("<i2").tobytes())


def plot_losses(out: Path) -> None:
    """`losses.png` from `losses.csv`, one panel a loss."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = loss_log.read(out)
    if not rows:
        return
    names = [name for name in rows[0] if name not in ("step", "seconds")]
    figure, panels = pyplot.subplots(2, 3, figsize=(12, 6), constrained_layout=True)
    for panel, name in zip(panels.flat, names, strict=False):
        panel.plot([float(r["step"]) for r in rows], [float(r[name]) for r in rows])
        panel.set_title(name)
        panel.set_xlabel("step")
    figure.savefig(out / "losses.png", dpi=90)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("audio", type=Path)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=3600.0, help="of this run")
    parser.add_argument("--planned", type=float, help="of all runs together; default: this run")
    parser.add_argument("--spent", type=float, default=0.0, help="by the runs before")
    parser.add_argument("--judges", type=Path, help="judges_fp16.safetensors of a run before")
    parser.add_argument("--batch", type=int, default=Settings().batch)
    parser.add_argument(
        "--rate", type=float, default=Settings().generator_rate, help="highest learning rates"
    )
    parser.add_argument(
        "--recorded",
        action=argparse.BooleanOptionalAction,
        default=torch.cuda.is_available(),
        help="replay steps as CUDA graphs",
    )
    parser.add_argument(
        "--settle", type=int, default=Settings().settle_steps, help="steps of the judges alone"
    )
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    settings = Settings(
        batch=args.batch,
        generator_rate=args.rate,
        discriminator_rate=args.rate,
        settle_steps=args.settle,
    )
    trainer = Trainer(args.audio, args.checkpoint, args.out, settings, device, judges=args.judges)
    print("hours of speech:", {v: round(h, 2) for v, h in trainer.segments.hours.items()})
    if args.recorded:
        trainer.record()
    trainer.run(seconds=args.seconds, planned=args.planned or args.seconds, spent=args.spent)


if __name__ == "__main__":
    main()
