"""Train the language model on encoded speech: `python -m training.language_model AUDIO OUT`.

AUDIO is a folder of shards with codes (`training.generate`, `training.frame_store`). Starts from
the language model of a packed voice (`--start`, default the embedded one) and learns the codebooks
that are sampled; the others stay at their fixed codes. A sequence is `[speaker]`, then one to four
utterances of one voice; every utterance begins with the lead (`training.onset`), which is given,
so no loss falls on it. Writes OUT/lm_bf16.safetensors, config.json, `losses.csv` and
`losses.png`.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset
from tqdm import tqdm

from engine.checkpoints.mini_voices import Layout
from engine.frontend.phonemes import Alphabet
from engine.lm_config import LmConfig
from training import loss_log
from training.audio_store import read_shard
from training.frame_store import SAMPLES_PER_FRAME
from training.onset import LEAD

IGNORED = -100
_REFERENCED = 0.5
ANY_SPEAKER = 186
VALIDATION_SHARE = 97
"""One sentence in so many is never trained on."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Of one run."""

    positions: int = 40_960
    longest: int = 1408
    rate: float = 4e-4
    lowest_share: float = 0.03
    warm_up: int = 100
    dropout: float = 0.15
    weight_decay: float = 0.1
    noise: float = 0.04
    """Share of the input frames replaced by random codes."""
    unnamed: float = 0.2
    """Share of the sequences whose speaker is not told."""
    utterances: tuple[float, ...] = (0.15, 0.5, 0.25, 0.1)
    """How many utterances a sequence has."""
    other_language: float = 0.3
    """Share of the earlier utterances in another language of the voice."""
    held: float = 0.3
    """Share of the first utterances whose last frame is held, as a padded reference's is."""
    longest_held: int = 64
    short: float = 0.15
    """Share of the last utterances drawn from the shortest quarter."""
    balance: float = 0.45
    """Exponent on the hours of a voice and language when one is drawn."""
    kv_heads: int | None = None
    """Heads of keys and values; None: as many as the packed model has."""
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Sentence:
    """One utterance as ids and sampled codes (frames, sampled codebooks)."""

    text_id: str
    voice: str
    language: str
    head: npt.NDArray[np.int64]
    codes: npt.NDArray[np.int16]

    @property
    def positions(self) -> int:
        return len(self.head) + len(self.codes)

    @property
    def held_out(self) -> bool:
        return sum(self.text_id.encode()) % VALIDATION_SHARE == 0


@dataclass(frozen=True, slots=True)
class Voiced:
    """What the packed voice says of its ids."""

    lm: LmConfig
    layout: Layout
    alphabet: Alphabet
    speakers: dict[str, int]

    @classmethod
    def read(cls, folder: Path) -> Voiced:
        tokens = json.loads((folder / "config.json").read_text("utf-8"))["tokens"]
        lm = json.loads((folder / "lm" / "config.json").read_text("utf-8"))
        cards = json.loads((folder / "voices.json").read_text("utf-8"))["voices"]
        return cls(
            LmConfig.from_dict(lm["voxgate"], vocab_size=lm["vocab_size"]),
            Layout(
                tokens["start_text"],
                tokens["start_codes"],
                tokens["first_speed"],
                tuple(tokens["speeds"]),
            ),
            Alphabet(json.loads((folder / "phonemes.json").read_text("utf-8"))),
            {card["id"]: card["speaker_token"] for card in cards},
        )


def sentences(folder: Path, voice: Voiced) -> list[Sentence]:
    """All encoded utterances of the voices known. Raises `FileNotFoundError` when none is there."""
    found = []
    for lines in sorted(folder.glob("*.jsonl")):
        stored = lines.with_suffix(".codes.npy")
        if not stored.exists():
            continue
        codes = np.load(stored)[:, voice.lm.sampled_codebooks]
        at = 0
        for utterance in read_shard(lines):
            frames = -(-utterance.samples // SAMPLES_PER_FRAME)
            own, at = codes[at : at + frames].copy(), at + frames
            if len(own) < frames:
                break
            if utterance.voice not in voice.speakers:
                continue
            own[0] = [LEAD[i] for i in voice.lm.sampled_codebooks]
            head = voice.layout.piece(voice.alphabet.encode(utterance.phonemes), utterance.speed)
            found.append(
                Sentence(
                    utterance.text_id,
                    utterance.voice,
                    utterance.language,
                    np.array(head, np.int64),
                    own,
                )
            )
    if not found:
        raise FileNotFoundError(f"{folder} holds no encoded speech of {', '.join(voice.speakers)}")
    return found


@dataclass(frozen=True, slots=True)
class Batch:
    """Text ids, codes, which positions are frames, and labels: all (batch, positions[, codebooks]),
    small integers."""

    text: Tensor
    codes: Tensor
    frames: Tensor
    labels: Tensor

    def to(self, device: torch.device) -> Batch:
        moved = [t.to(device, non_blocking=True) for t in self.tensors]
        return Batch(moved[0].long(), moved[1].long(), moved[2], moved[3].long())

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.text, self.codes, self.frames, self.labels


class Sequences(IterableDataset[tuple[Tensor, ...]]):
    """Endless batches of like-long sequences."""

    def __init__(
        self,
        spoken: Sequence[Sentence],
        voice: Voiced,
        settings: Settings,
        references: Mapping[tuple[str, str], tuple[Sentence, int]] | None = None,
    ) -> None:
        """references: what half of the sequences of a voice and language begin with, and how often
        its last frame is held."""
        self._voice, self._settings, self._references = voice, settings, references or {}
        self._groups: dict[tuple[str, str], list[Sentence]] = {}
        for sentence in spoken:
            self._groups.setdefault((sentence.voice, sentence.language), []).append(sentence)
        for group in self._groups.values():
            group.sort(key=lambda sentence: len(sentence.codes))
        hours = {key: sum(len(s.codes) for s in group) for key, group in self._groups.items()}
        self._keys = list(hours)
        self._weights = [hours[key] ** settings.balance for key in self._keys]

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        worker = torch.utils.data.get_worker_info()
        draw = random.Random(f"{self._settings.seed}-{worker.id if worker else 0}")
        while True:
            pool = sorted((self._draw(draw) for _ in range(768)), key=lambda s: s[0])
            batches: list[list[tuple[int, bool, list[Sentence], int]]] = [[]]
            for sequence in pool:
                if _rounded(sequence[0]) * (len(batches[-1]) + 1) > self._settings.positions:
                    batches.append([])
                batches[-1].append(sequence)
            draw.shuffle(batches)
            for batch in batches:
                yield self.pack([(named, chosen, held) for _, named, chosen, held in batch]).tensors

    def _draw(self, draw: random.Random) -> tuple[int, bool, list[Sentence], int]:
        settings = self._settings
        voice, language = draw.choices(self._keys, self._weights)[0]
        count = draw.choices(range(1, 1 + len(settings.utterances)), settings.utterances)[0]
        others = [key for key in self._keys if key[0] == voice and key[1] != language]
        named = draw.random() >= settings.unnamed
        held = draw.randrange(1, settings.longest_held) if draw.random() < settings.held else 0
        chosen: list[Sentence] = []
        if (voice, language) in self._references and draw.random() < _REFERENCED:
            reference, held = self._references[voice, language]
            chosen, named = [reference], True
        total = 1 + held + sum(s.positions for s in chosen)
        for number in range(count):
            last = number == count - 1
            swap = not last and others and draw.random() < settings.other_language
            group = self._groups[draw.choice(others) if swap else (voice, language)]
            short = last and draw.random() < settings.short
            sentence = group[draw.randrange(max(1, len(group) // 4) if short else len(group))]
            if total + sentence.positions <= settings.longest:
                chosen.append(sentence)
                total += sentence.positions
        return (
            (total, named, chosen, held if len(chosen) > 1 else 0) if chosen else self._draw(draw)
        )

    def pack(self, sequences: Sequence[tuple[bool, list[Sentence], int]]) -> Batch:
        """Sequences (speaker told?, utterances, times the first one's last frame is held)."""
        lm = self._voice.lm
        width = len(lm.sampled_codebooks)
        longest = max(1 + held + sum(s.positions for s in chosen) for _, chosen, held in sequences)
        shape = (len(sequences), _rounded(longest))
        text = np.zeros(shape, np.int16)
        codes = np.zeros((*shape, width), np.int16)
        frames = np.zeros(shape, bool)
        labels = np.full((*shape, width), IGNORED, np.int16)
        for row, (named, chosen, held) in enumerate(sequences):
            text[row, 0] = self._voice.speakers[chosen[0].voice] if named else ANY_SPEAKER
            at = 1
            for number, sentence in enumerate(chosen):
                text[row, at : at + len(sentence.head)] = sentence.head
                at += len(sentence.head)
                end = at + len(sentence.codes)
                codes[row, at:end] = sentence.codes
                labels[row, at : end - 1] = sentence.codes[1:]
                labels[row, end - 1] = lm.end_code
                pad = held if number == 0 else 0
                codes[row, end : end + pad] = sentence.codes[-1]
                frames[row, at : end + pad] = True
                at = end + pad
        return Batch(*map(torch.from_numpy, (text, codes, frames, labels)))


def _rounded(positions: int) -> int:
    return -(-positions // 64) * 64


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self._size = width // heads
        shared = self._size * kv_heads
        self.q_proj, self.o_proj = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.k_proj, self.v_proj = (nn.Linear(width, shared, bias=False) for _ in range(2))

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(batch, positions, width) -> queries, keys, values (batch, heads, positions, size)."""
        q, k, v = (
            projection(x).unflatten(-1, (-1, self._size)).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        return q, k, v

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q, k, v = self.project(x)
        y = F.scaled_dot_product_attention(
            rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True, enable_gqa=True
        )
        return self.o_proj(y.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions: x (.., positions, size) by the cosines and sines of the angles."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


class Gated(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))  # type: ignore[no-any-return]


class Layer(nn.Module):
    def __init__(self, shape: Mapping[str, Any], dropout: float) -> None:
        super().__init__()
        width, eps = shape["hidden_size"], shape["rms_norm_eps"]
        self.input_layernorm = nn.RMSNorm(width, eps)
        self.self_attn = Attention(
            width, shape["num_attention_heads"], shape["num_key_value_heads"]
        )
        self.post_attention_layernorm = nn.RMSNorm(width, eps)
        self.mlp = Gated(width, shape["intermediate_size"])
        self._dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self._dropout(self.self_attn(self.input_layernorm(x), cos, sin))
        y: Tensor = x + self._dropout(self.mlp(self.post_attention_layernorm(x)))
        return y


class LanguageModel(nn.Module):
    """The packed language model, its tensors by their packed names.

    kv_heads: how many heads of keys and values to share among the heads of queries; None keeps the
    packed number. Fewer start from the mean of those they stand for (Ainslie et al. 2023).
    """

    def __init__(self, folder: Path, dropout: float, kv_heads: int | None = None) -> None:
        super().__init__()
        packed = json.loads((folder / "config.json").read_text("utf-8"))
        shape = packed | {"num_key_value_heads": kv_heads or packed["num_key_value_heads"]}
        self.shape = shape
        lm = LmConfig.from_dict(shape["voxgate"], vocab_size=shape["vocab_size"])
        width, heads = shape["hidden_size"], shape["num_attention_heads"]
        self.lm = lm
        self.emb_text = nn.Embedding(lm.text_vocab, width)
        sampled = [str(i) for i in lm.sampled_codebooks]
        self.emb_code = nn.ModuleDict({i: nn.Embedding(lm.code_vocab, width) for i in sampled})
        self.emb_code_fixed = nn.ParameterDict({str(i): torch.zeros(width) for i in lm.fixed_codes})
        self.layers = nn.ModuleList(
            Layer(shape, dropout) for _ in range(shape["num_hidden_layers"])
        )
        self.norm = nn.RMSNorm(width, shape["rms_norm_eps"])
        self.head_code = nn.ModuleDict(
            {i: nn.Linear(width, lm.code_vocab, bias=False) for i in sampled}
        )
        self._dropout = nn.Dropout(dropout)
        theta = shape.get("rope_theta") or shape["rope_parameters"]["rope_theta"]
        size = width // heads
        angle = torch.arange(shape["max_position_embeddings"])[:, None] * theta ** (
            -torch.arange(0, size, 2) / size
        )
        self.register_buffer("angle", torch.cat([angle, angle], -1), persistent=False)
        weights = load_file(folder / "model.safetensors")
        shared = packed["num_key_value_heads"] // shape["num_key_value_heads"]
        self.load_state_dict(
            {name: _pooled(name, value.float(), size, shared) for name, value in weights.items()}
        )

    def embed(self, text: Tensor, codes: Tensor, frames: Tensor) -> Tensor:
        """(batch, positions[, sampled codebooks]) -> (batch, positions, width)."""
        embedded = sum(
            (table(codes[..., i]) for i, table in enumerate(self.emb_code.values())),
            start=torch.stack(list(self.emb_code_fixed.values())).sum(0),
        )
        return torch.where(frames[..., None], embedded, self.emb_text(text))

    def forward(self, text: Tensor, codes: Tensor, frames: Tensor) -> Tensor:
        """(batch, positions[, sampled codebooks]) -> hidden (batch, positions, width)."""
        x = self._dropout(self.embed(text, codes, frames))
        angle = self.get_buffer("angle")[: text.shape[1]]
        if torch.is_autocast_enabled(x.device.type):
            x = x.bfloat16()
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        hidden: Tensor = self.norm(x)
        return hidden

    def losses(self, batch: Batch, noise: float, teacher: LanguageModel | None = None) -> Tensor:
        """Of each sampled codebook: the cross entropy, or with a teacher how far the distribution
        is from the teacher's (Kullback-Leibler divergence in nats)."""
        codes = batch.codes
        if noise:
            hit = torch.rand(codes.shape[:2], device=codes.device)[..., None] < noise
            codes = torch.where(hit, torch.randint_like(codes, self.lm.end_code), codes)
        hidden = self(batch.text, codes, batch.frames)
        counted = batch.labels[..., 0] != IGNORED
        logits = [head(hidden[counted]).float() for head in self.head_code.values()]
        if teacher is None:
            labels = batch.labels[counted]
            return torch.stack([F.cross_entropy(x, labels[:, i]) for i, x in enumerate(logits)])
        with torch.no_grad():
            told = teacher(batch.text, codes, batch.frames)[counted]
            goals = [head(told).float().log_softmax(-1) for head in teacher.head_code.values()]
        return torch.stack(
            [
                F.kl_div(x.log_softmax(-1), goal, reduction="batchmean", log_target=True)
                for x, goal in zip(logits, goals, strict=True)
            ]
        )


def _pooled(name: str, weight: Tensor, size: int, shared: int) -> Tensor:
    """Keys and values (heads * size, in) as the mean of every `shared` neighbouring heads."""
    if shared == 1 or not name.endswith(("k_proj.weight", "v_proj.weight")):
        return weight
    return weight.view(-1, shared, size, weight.shape[1]).mean(1).flatten(0, 1)


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
        (self.out / "config.json").write_text(json.dumps(self.model.shape, indent=1) + "\n")

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
