"""Train the language model on encoded speech: `python -m training.language_model AUDIO OUT`.

AUDIO is a folder of shards with codes (`training.generate`, `training.frame_store`). Starts from
the language model of a packed voice (`--start`, default the embedded one) and learns the codebooks
that are sampled; the others stay at their fixed codes. Writes OUT/lm_bf16.safetensors,
lm_config.json, `losses.csv` and `losses.png`; `python -m training.pack OUT --weights` takes both.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.utils.data import DataLoader
from tqdm import tqdm

from training import loss_log
from training.lm_model import LanguageModel
from training.lm_sequences import Batch, Sentence, Sequences, Settings, Voiced, sentences


class Trainer:
    """One run, resumed from OUT/state.pt when that is there."""

    def __init__(
        self,
        spoken: Sequence[Sentence],
        out: Path,
        start: Path,
        settings: Settings,
        device: torch.device,
        *,
        references: Mapping[tuple[str, str], tuple[Sentence, int]] | None = None,
        teacher: LanguageModel | None = None,
    ) -> None:
        """`references`: see `Sequences`; `teacher`: see `LanguageModel.losses`."""
        torch.manual_seed(settings.seed)
        out.mkdir(parents=True, exist_ok=True)
        self.settings, self.out, self.device = settings, out, device
        voice = Voiced.read(start)
        trained = [s for s in spoken if not s.held_out]
        self.sequences = Sequences(trained, voice, settings, references)
        held_out = [s for s in spoken if s.held_out and len(s.codes) < 500]
        self.validation: dict[str, Batch] = {}
        for language in sorted({s.language for s in held_out}):
            own = [(True, [s], 0) for s in held_out if s.language == language]
            self.validation[language] = self.sequences.pack(own[:64]).to(device)
        self.model = LanguageModel(start / "lm", settings.dropout, settings.kv_heads).to(device)
        self.teacher = teacher
        matrices = [p for n, p in self.model.named_parameters() if p.dim() > 1 and "emb" not in n]
        others = [p for n, p in self.model.named_parameters() if p.dim() < 2 or "emb" in n]
        self.optimiser = torch.optim.AdamW(
            [
                {"params": matrices, "weight_decay": settings.weight_decay},
                {"params": others, "weight_decay": 0.0},
            ],
            lr=settings.rate,
            betas=(0.9, 0.95),
            fused=device.type == "cuda",
        )
        self.step, self.spent = 0, 0.0
        state = out / "state.pt"
        if state.exists():
            stored = torch.load(state, map_location=device, weights_only=True)
            self.step, self.spent = stored["step"], stored["spent"]
            self.model.load_state_dict(stored["model"])
            self.optimiser.load_state_dict(stored["optimiser"])

    def _half(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda")

    def train_step(self, batch: Batch, share_done: float) -> Tensor:
        """One step; returns the losses of the sampled codebooks."""
        settings = self.settings
        cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, share_done)))
        warm = min(1.0, (self.step + 1) / settings.warm_up)
        for group in self.optimiser.param_groups:
            group["lr"] = settings.rate * warm * max(settings.lowest_share, cosine)
        with self._half():
            losses = self.model.losses(batch.to(self.device), settings.noise, self.teacher)
        self.optimiser.zero_grad(set_to_none=True)
        losses.sum().backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        self.step += 1
        return losses.detach()

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """Mean cross entropy of the sampled codebooks on held-out sentences, by language."""
        self.model.eval()
        with self._half():
            means = {
                language: self.model.losses(batch, 0.0, self.teacher).mean().item()
                for language, batch in self.validation.items()
            }
        self.model.train()
        return means

    def save(self) -> None:
        """Write the state to resume from and the weights to pack."""
        state = {
            "step": self.step,
            "spent": self.spent,
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
        }
        torch.save(state, self.out / "state.pt.partial")
        (self.out / "state.pt.partial").replace(self.out / "state.pt")
        weights = {
            name: value.bfloat16().cpu().contiguous()
            for name, value in self.model.state_dict().items()
        }
        save_file(weights, self.out / "lm_bf16.safetensors")
        (self.out / "lm_config.json").write_text(json.dumps(self.model.shape, indent=1) + "\n")

    def run(self, seconds: float, workers: int) -> None:
        """Train until `seconds` are spent, those of runs before counted in."""
        began = time.monotonic() - self.spent
        loader = iter(
            DataLoader(
                self.sequences,
                batch_size=None,
                num_workers=workers,
                pin_memory=self.device.type == "cuda",
                prefetch_factor=8 if workers else None,
            )
        )
        self.model.train()
        gathered: list[Tensor] = []
        next_look = self.spent
        with tqdm(total=seconds, unit="s", bar_format="{l_bar}{bar}| {n:.0f} s{postfix}") as bar:
            while self.spent < seconds:
                gathered.append(self.train_step(Batch(*next(loader)), self.spent / seconds))
                self.spent = time.monotonic() - began
                if self.spent >= next_look:
                    next_look += seconds / 12
                    self._log(gathered)
                    gathered = []
                    bar.update(self.spent - bar.n)
                    bar.set_postfix_str(f"step {self.step}")
        self._log(gathered)
        self.save()
        plot(self.out)

    def _log(self, gathered: list[Tensor]) -> None:
        row = {"step": float(self.step), "seconds": self.spent}
        row["train"] = torch.stack(gathered).mean().item() if gathered else float("nan")
        row |= {f"validation_{language}": loss for language, loss in self.validate().items()}
        loss_log.append(self.out, row, digits=4)


def plot(out: Path) -> None:
    """`losses.png` from `losses.csv`."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = loss_log.read(out)
    figure, panel = pyplot.subplots(figsize=(7, 4), constrained_layout=True)
    for name in rows[0]:
        if name not in ("step", "seconds"):
            panel.plot([float(r["step"]) for r in rows], [float(r[name]) for r in rows], label=name)
    panel.set_xlabel("step")
    panel.set_ylabel("cross entropy")
    panel.legend()
    figure.savefig(out / "losses.png", dpi=90)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    root = Path(__file__).resolve().parent.parent
    parser.add_argument("audio", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--start", type=Path, default=root / "engine" / "voices" / "mini")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--workers", type=int, default=6, help="processes that make batches")
    parser.add_argument("--rate", type=float, default=Settings().rate, help="highest learning rate")
    parser.add_argument("--positions", type=int, default=Settings().positions, help="a batch")
    parser.add_argument("--kv-heads", type=int, help="of keys and values; as packed by default")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cuda.matmul.allow_tf32 = True
    settings = Settings(rate=args.rate, positions=args.positions, kv_heads=args.kv_heads)
    spoken = sentences(args.audio, Voiced.read(args.start))
    Trainer(spoken, args.out, args.start, settings, device).run(args.seconds, args.workers)


if __name__ == "__main__":
    main()
