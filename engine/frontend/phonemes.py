"""The phoneme alphabet of the embedded voice: symbols to token ids."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

TERMINALS = frozenset(".!?…,;:—")
"""Marks that end a phoneme string; the model was never trained on a string without one."""
_PUNCTUATION = frozenset(';:,.!?—…"()“” ')
_SPACES = re.compile(r"\s+")
_SPACED_MARK = re.compile(r" +(?=[,.;:!?…])")


class Alphabet:
    """Symbol -> id. Symbols outside it have no sound and are left out."""

    def __init__(self, ids: Mapping[str, int]) -> None:
        self._ids = dict(ids)

    @classmethod
    def load(cls, path: Path) -> Alphabet:
        return cls(json.loads(path.read_text(encoding="utf-8")))

    @classmethod
    def embedded(cls) -> Alphabet:
        """That of the voice which comes with the package."""
        return cls.load(Path(__file__).parents[1] / "voices" / "mini" / "phonemes.json")

    def clean(self, phonemes: str) -> str:
        """Only symbols of the alphabet, single spaces and none before a mark, trimmed."""
        known = "".join(c for c in phonemes if c in self._ids)
        return _SPACED_MARK.sub("", _SPACES.sub(" ", known)).strip()

    def encode(self, phonemes: str) -> list[int]:
        return [self._ids[c] for c in phonemes if c in self._ids]


def is_mark(symbol: str) -> bool:
    """Whether a symbol is punctuation or a space."""
    return symbol in _PUNCTUATION


def has_sound(phonemes: str) -> bool:
    """Whether anything but punctuation is left to say."""
    return not all(map(is_mark, phonemes))
