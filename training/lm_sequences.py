"""What the language model is trained on: sequences of utterances, packed into batches.

A sequence is `[speaker]`, then one to four utterances of one voice; every utterance begins with the
lead (`training.onset`), which is given, so no loss falls on it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import IterableDataset

from engine.checkpoints.mini_voices import Layout
from engine.frontend.phonemes import Alphabet
from engine.lm_config import LmConfig
from training.audio_store import read_shard
from training.frame_store import SAMPLES_PER_FRAME
from training.onset import LEAD

IGNORED = -100
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
    referenced: float = 0.5
    """Share of the sequences that begin with the voice's reference, where there is one."""
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
        """references: what `Settings.referenced` of the sequences of a voice and language begin
        with, and how often its last frame is held."""
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
        if (voice, language) in self._references and draw.random() < settings.referenced:
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
