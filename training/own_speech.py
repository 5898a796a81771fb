"""What the voice itself says: codes drawn by a packed language model, many sentences at once.

To learn from itself a voice needs no teacher and no recordings, only texts.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm import tqdm

from engine.checkpoints.mini_voices import Voices
from engine.noise import scramble, stream_keys
from engine.sampler import draw, sorted_candidates
from training.lm_model import LanguageModel, Layer, rotate
from training.lm_sequences import Sentence, Voiced

SPEED_WEIGHTS = (8, 17, 50, 17, 8)
BLOCK = 32
"""References are padded as in the engine: to whole KV blocks."""
_LONGEST_SHARE, _MORE_FRAMES = 2, 30
_RECENT = 16


class Manner(NamedTuple):
    """How codes are drawn."""

    temperature: float
    top_p: float
    top_k: int
    penalty: float


USUAL = Manner(0.3, 0.7, 20, 1.05)
FREE = Manner(0.8, 0.9, 40, 1.05)
"""Wider than what is served, so that what leaves the beaten track is learned too."""


@dataclass(frozen=True, slots=True)
class Prompted:
    """A sentence to be spoken after a voice's reference; `expected` is its length in frames."""

    text_id: str
    voice: str
    language: str
    head: tuple[int, ...]
    expected: int


def references(folder: Path, voiced: Voiced) -> dict[tuple[str, str], tuple[Sentence, int]]:
    """By voice and language: the reference of a packed voice, and how often its last frame is held
    to fill whole blocks."""
    catalogue = json.loads((folder / "voices.json").read_text("utf-8"))
    found = {}
    known = Voices(catalogue, voiced.layout, voiced.alphabet, voiced.lm).references
    for (name, language), reference in known.items():
        codes = reference.codes[:, voiced.lm.sampled_codebooks]
        held = len(reference.padded(BLOCK)) - len(codes)
        head = np.array(reference.head[1:], np.int64)
        found[name, language] = Sentence("reference", name, language, head, codes), held
    return found


def prompts(texts: Path, folder: Path, voiced: Voiced, seed: int) -> list[Prompted]:
    """Every sentence of TEXTS (`training.texts`) by one of the voices that speak its language, the
    languages in turn."""
    catalogue = json.loads((folder / "voices.json").read_text("utf-8"))
    known = Voices(catalogue, voiced.layout, voiced.alphabet, voiced.lm).references
    dice = random.Random(seed)
    pools = []
    for language in ("en", "zh"):
        voices = [name for name, spoken in known if spoken == language]
        lines = (texts / f"{language}.jsonl").read_text("utf-8").splitlines()
        dice.shuffle(lines)
        pool = []
        for line in lines:
            text = json.loads(line)
            name = dice.choice(voices)
            speed = dice.choices(range(len(SPEED_WEIGHTS)), SPEED_WEIGHTS)[0]
            phonemes = voiced.alphabet.encode(text["phonemes"])
            frames = known[name, language].pace * len(phonemes) / voiced.layout.speeds[speed]
            head = voiced.layout.piece(phonemes, speed)
            pool.append(Prompted(text["id"], name, language, head, round(frames) + 6))
        pools.append(pool)
    return [prompted for pair in zip(*pools, strict=False) for prompted in pair]


class Speaker:
    """Draws codes for many sentences at once, on a cache of keys and values."""

    def __init__(self, model: LanguageModel, longest: int, rows: int) -> None:
        self._model, self._device = model, next(model.parameters()).device
        shape = model.shape
        heads, width = shape["num_key_value_heads"], shape["hidden_size"]
        size = (rows, heads, longest, width // shape["num_attention_heads"])
        half = torch.bfloat16 if self._device.type == "cuda" else torch.float32
        self._cache = [
            (
                torch.empty(size, dtype=half, device=self._device),
                torch.empty(size, dtype=half, device=self._device),
            )
            for _ in range(shape["num_hidden_layers"])
        ]
        self._layers = cast("list[Layer]", list(model.layers))
        self._longest = longest

    def _step(self, x: Tensor, positions: Tensor, at: int, seen: Tensor) -> Tensor:
        """Hidden (B, width) of the last of x (B, T, width); `seen` (B, 1, T, at + T)."""
        angle = self._model.get_buffer("angle")[positions][:, None]
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        rows, end = len(x), at + x.shape[1]
        for layer, (keys, values) in zip(self._layers, self._cache, strict=True):
            attention = layer.self_attn
            q, k, v = attention.project(layer.input_layernorm(x))
            keys[:rows, :, at:end] = rotate(k, cos, sin)
            values[:rows, :, at:end] = v
            y = F.scaled_dot_product_attention(
                rotate(q, cos, sin),
                keys[:rows, :, :end],
                values[:rows, :, :end],
                attn_mask=seen,
                enable_gqa=True,
            )
            x = x + attention.o_proj(y.transpose(1, 2).flatten(2))
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        hidden: Tensor = self._model.norm(x[:, -1])
        return hidden

    def speak(
        self, asked: Sequence[tuple[Sentence, int, int, Prompted]], manner: Manner, seed: int
    ) -> list[npt.NDArray[np.int16] | None]:
        """Codes (frames, sampled codebooks) of each prompt (reference, held, speaker id, sentence),
        without the end; None of those that did not end."""
        end = self._model.lm.end_code
        spoken: list[npt.NDArray[np.int16] | None] = []
        for codes in self.drawn(asked, manner, seed):
            ends = np.flatnonzero((codes == end).any(1))
            spoken.append(codes[: ends[0]] if ends.size and ends[0] else None)
        return spoken

    @torch.inference_mode()
    def drawn(
        self, asked: Sequence[tuple[Sentence, int, int, Prompted]], manner: Manner, seed: int
    ) -> npt.NDArray[np.int16]:
        """Codes (prompts, frames, sampled codebooks) as they were drawn; whatever follows a row's
        first end means nothing."""
        model, device, lm = self._model, self._device, self._model.lm
        width = len(lm.sampled_codebooks)
        lengths = [1 + s.positions + held + len(p.head) + 1 for s, held, _, p in asked]
        rows, start = len(asked), max(lengths)
        text = torch.zeros((rows, start), dtype=torch.int64)
        codes = torch.zeros((rows, start, width), dtype=torch.int64)
        frames = torch.zeros((rows, start), dtype=torch.bool)
        for row, ((spoken, held, speaker, prompted), length) in enumerate(
            zip(asked, lengths, strict=True)
        ):
            at = start - length
            text[row, at] = speaker
            text[row, at + 1 : at + 1 + len(spoken.head)] = torch.from_numpy(spoken.head)
            at += 1 + len(spoken.head)
            own = torch.from_numpy(spoken.codes.astype(np.int64))
            own = torch.cat([own, own[-1:].expand(held, -1)])
            codes[row, at : at + len(own)], frames[row, at : at + len(own)] = own, True
            at += len(own)
            text[row, at : at + len(prompted.head)] = torch.tensor(prompted.head)
            # The lead, given and not drawn, is the first frame of every reference too.
            codes[row, -1], frames[row, -1] = own[0], True
        text, codes, frames = text.to(device), codes.to(device), frames.to(device)
        pad = torch.tensor([start - length for length in lengths], device=device)
        place = torch.arange(self._longest, device=device)
        valid = place[None] >= pad[:, None]
        causal = place[None, :start] <= place[:start, None]
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            x = model.embed(text, codes, frames)
            x = x.to(self._cache[0][0].dtype)
            positions = (place[None, :start] - pad[:, None]).clamp(min=0)
            seen = (causal[None] & valid[:, None, :start])[:, None]
            # A padded query sees itself, or its softmax would be over nothing.
            seen |= torch.eye(start, dtype=torch.bool, device=device)
            hidden = self._step(x, positions, 0, seen)
            most = min(
                self._longest - start,
                max(_LONGEST_SHARE * p.expected + _MORE_FRAMES for *_, p in asked),
            )
            drawn = torch.full((rows, most, width), lm.end_code, device=device)
            ended = torch.zeros(rows, dtype=torch.bool, device=device)
            keys = torch.tensor([scramble(seed + row) for row in range(rows)], device=device)
            for frame in range(most):
                logits = torch.stack([head(hidden) for head in model.head_code.values()], 1)
                code = self._draw(logits.float(), drawn, frame, keys, manner)
                drawn[:, frame] = code
                ended |= (code == lm.end_code).any(1)
                if frame % 8 == 7 and bool(ended.all()):
                    break
                heard = code.clamp(max=lm.end_code - 1)[:, None]
                x = model.embed(text[:, :1], heard, frames[:, -1:])
                at = start + frame
                hidden = self._step(
                    x.to(self._cache[0][0].dtype),
                    (at - pad)[:, None],
                    at,
                    valid[:, None, None, : at + 1],
                )
        codes_drawn: npt.NDArray[np.int16] = drawn.cpu().numpy().astype(np.int16)
        return codes_drawn

    @staticmethod
    def _draw(logits: Tensor, drawn: Tensor, frame: int, seeds: Tensor, manner: Manner) -> Tensor:
        rows, width, size = logits.shape
        back = min(frame, _RECENT)
        recent = drawn[:, frame - back : frame].transpose(1, 2).reshape(rows * width, back)
        device = logits.device

        def every(value: float) -> Tensor:
            return torch.full((rows * width,), value, device=device)

        position = torch.full((rows,), frame, dtype=torch.int64, device=device)
        return draw(
            logits.reshape(rows * width, size),
            keys=stream_keys(seeds, position, width).flatten(),
            temperature=every(manner.temperature),
            recent=recent,
            valid=torch.ones_like(recent, dtype=torch.bool),
            penalty=every(manner.penalty),
            top_p=every(manner.top_p),
            top_k=every(manner.top_k).long(),
            sorted_k=sorted_candidates(manner.top_k),
            end=size - 1,
            end_forbidden=torch.full((rows * width,), frame < 2, device=device),
        ).view(rows, width)


def speak_all(
    model: LanguageModel,
    asked: Sequence[Prompted],
    spoken_after: dict[tuple[str, str], tuple[Sentence, int]],
    speakers: dict[str, int],
    *,
    rows: int = 768,
    longest: int = 1536,
) -> Iterator[Sentence]:
    """Every prompt spoken, in batches of like-long ones; what did not end is left out. Every third
    batch is drawn more freely than is served."""
    speaker = Speaker(model, longest, rows)
    order = sorted(asked, key=lambda prompted: (prompted.expected, len(prompted.head)))
    batches = [order[at : at + rows] for at in range(0, len(order), rows)]
    random.Random(0).shuffle(batches)
    for number, batch in enumerate(tqdm(batches, desc="speaking", unit="batch")):
        prompted = [(*spoken_after[p.voice, p.language], speakers[p.voice], p) for p in batch]
        manner = FREE if number % 3 == 2 else USUAL
        for (reference, *_, p), codes in zip(
            prompted, speaker.speak(prompted, manner, number * rows), strict=True
        ):
            if codes is not None:
                whole = np.concatenate([reference.codes[:1], codes])
                yield Sentence(p.text_id, p.voice, p.language, np.array(p.head, np.int64), whole)
