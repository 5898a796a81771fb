"""How far what was heard is from what should have been said. Pure functions over strings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from training.recogniser import edit_distance, heard_symbols, segments

_NOT_WORDS = re.compile(r"[^a-z0-9' ]")
_MARKS = re.compile(r"[;:,.!?—…\"()“”ˈˌ]")


@dataclass(slots=True)
class Errors:
    """Edits against reference length, summed over sentences."""

    edits: int = 0
    length: int = 0

    def add(self, reference: Sequence[object], heard: Sequence[object]) -> float:
        """Count one sentence; returns its own error rate."""
        edits = edit_distance(reference, heard)
        self.edits += edits
        self.length += len(reference)
        return edits / max(1, len(reference))

    @property
    def percent(self) -> float:
        return 100 * self.edits / max(1, self.length)


def plain_words(text: str) -> list[str]:
    """Lower-case words: hyphens split, punctuation goes, digits stay digits."""
    return _NOT_WORDS.sub(" ", text.lower().replace("-", " ")).split()


def spoken_words(phonemes: str) -> list[str]:
    """Words as phonemes without stress: "two" is "2" and "colour" is "color"."""
    return _MARKS.sub("", phonemes.replace("—", " ")).split()


def phone_errors(reference: str, heard: str, errors: Errors, toneless: Errors) -> float:
    """Count Mandarin phonemes, with tones and without; returns the rate with tones."""
    said = heard_symbols(reference)
    rate = errors.add(said, heard)
    toneless.add(segments(said), segments(heard))
    return rate
