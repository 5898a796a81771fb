"""Pronunciation: words that are said otherwise than they are written."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gateway import characters as ch
from gateway.spoken.mapped import Edit

MAX_ENTRIES: Final = 5000
MAX_WORD_CHARS: Final = 64
MAX_SAID_CHARS: Final = 256

# A word of a script that separates words is matched whole; Chinese and Japanese ones anywhere.
_LETTER: Final = re.compile(f"[^\\W_{ch.CJK_CLASS}]")
_LOOSE: Final = re.compile(f"[\\W{ch.CJK_CLASS}]")


class LexiconError(ValueError):
    """An entry cannot be used. `code` is stable: `bad_pronunciation`."""

    code = "bad_pronunciation"


class Lexicon:
    """Words and how to say them.

    The longest word wins. A word written in lower case matches any case; one with a capital
    matches as it is. Raises `LexiconError` for an entry without a letter or digit on either side,
    or over the limits of this module.
    """

    def __init__(self, entries: Mapping[str, str]) -> None:
        if len(entries) > MAX_ENTRIES:
            raise LexiconError(f"{len(entries)} pronunciations: at most {MAX_ENTRIES} are allowed")
        for word, said in entries.items():
            _check(word, said)
        self._set({word.strip(): said.strip() for word, said in entries.items()})

    def _set(self, said: dict[str, str]) -> None:
        self._said = said
        lengths: dict[str, set[int]] = {}
        for word in said:
            lengths.setdefault(word[0], set()).add(len(word))
        self._lengths = {first: sorted(found, reverse=True) for first, found in lengths.items()}
        """By the first character, the longest first."""

    def __len__(self) -> int:
        return len(self._said)

    @property
    def entries(self) -> dict[str, str]:
        return dict(self._said)

    def over(self, base: Lexicon) -> Lexicon:
        """This lexicon with the entries of `base` that it lacks (a session's over the server's)."""
        if not len(base):
            return self
        both = Lexicon({})
        both._set({**base._said, **self._said})
        return both

    def edits(self, text: str) -> list[Edit]:
        """The replacements that `text` calls for, in order."""
        if not self._said:
            return []
        lower = "".join(map(_lower, text))
        edits, at = [], 0
        while at < len(text):
            found = self._at(text, lower, at)
            if found is not None:
                edits.append(found)
            at = at + 1 if found is None else found.high
        return edits

    def _at(self, text: str, lower: str, start: int) -> Edit | None:
        """The longest word that begins at `start`."""
        lengths = self._lengths.get(text[start], ())
        if lower[start] != text[start]:
            lengths = sorted({*lengths, *self._lengths.get(lower[start], ())}, reverse=True)
        if not lengths or not (
            _LOOSE.match(text, start) or not start or not _LETTER.match(text, start - 1)
        ):
            return None
        for length in lengths:
            end = start + length
            said = self._said.get(text[start:end]) or self._said.get(lower[start:end])
            if said is None or end > len(text):
                continue
            if _LOOSE.match(text, end - 1) or not _LETTER.match(text, end):
                return Edit(start, end, said)
        return None


def _lower(char: str) -> str:
    """In lower case, if that is one character too."""
    lower = char.lower()
    return lower if len(lower) == 1 else char


def load_lexicon(file: str) -> Lexicon:
    """The lexicon of a file: a JSON object of words and what to say for them; without a name the
    empty one. Raises `LexiconError`, `OSError`."""
    if not file:
        return Lexicon({})
    try:
        entries = json.loads(Path(file).read_text(encoding="utf-8"))
    except ValueError as invalid:
        raise LexiconError(f"{file} is not JSON: {invalid}") from None
    if not isinstance(entries, dict) or not all(isinstance(said, str) for said in entries.values()):
        raise LexiconError(f"{file} must hold one object of words and what to say for them")
    return Lexicon(entries)


def _check(word: str, said: str) -> None:
    if not ch.speakable(word) or len(word) > MAX_WORD_CHARS:
        raise LexiconError(
            f"the word {word[:80]!r} must hold a letter or digit and have at most "
            f"{MAX_WORD_CHARS} characters"
        )
    if not ch.speakable(said) or len(said) > MAX_SAID_CHARS:
        raise LexiconError(
            f"what is said for {word!r} must hold a letter or digit and have at most "
            f"{MAX_SAID_CHARS} characters"
        )
