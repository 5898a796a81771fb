"""Pronunciation: words that are said otherwise than they are written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import regex

from gateway import characters as ch
from gateway.spoken.mapped import Edit

MAX_ENTRIES: Final = 5000
MAX_WORD_CHARS: Final = 64
MAX_SAID_CHARS: Final = 256

# A word of a script that separates words is matched whole; Chinese and Japanese ones anywhere.
_BEFORE: Final = f"(?<![^\\W_{ch.CJK_CLASS}])"
_AFTER: Final = f"(?![^\\W_{ch.CJK_CLASS}])"


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
        self._said: dict[str, str] = {}
        for word, said in entries.items():
            _check(word, said)
            self._said[word.strip()] = said.strip()
        any_case = [word for word in self._said if word == word.lower()]
        exact = [word for word in self._said if word != word.lower()]
        kinds = [
            *([r"\L<exact>"] if exact else []),
            *([r"(?i:\L<any_case>)"] if any_case else []),
        ]
        self._pattern = regex.compile(
            rf"(?:(?=[\W{ch.CJK_CLASS}])|{_BEFORE})(?:{'|'.join(kinds)})"
            rf"(?:(?<=[\W{ch.CJK_CLASS}])|{_AFTER})",
            ignore_unused=True,
            cache_pattern=False,
            exact=exact,
            any_case=any_case,
        )

    def __len__(self) -> int:
        return len(self._said)

    @property
    def entries(self) -> dict[str, str]:
        return dict(self._said)

    def over(self, base: Lexicon) -> Lexicon:
        """This lexicon with the entries of `base` that it lacks (a session's over the server's)."""
        return Lexicon({**base._said, **self._said}) if len(base) else self

    def edits(self, text: str) -> list[Edit]:
        """The replacements that `text` calls for, in order."""
        if not self._said:
            return []
        return [
            Edit(match.start(), match.end(), said)
            for match in self._pattern.finditer(text)
            if (said := self._look_up(match.group())) is not None
        ]

    def _look_up(self, word: str) -> str | None:
        return self._said.get(word) or self._said.get(word.lower())


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
