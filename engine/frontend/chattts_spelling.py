"""Numbers, dates, money and the like as words, with `wetext`."""

from __future__ import annotations

from functools import cached_property

from wetext import Normalizer

from engine.frontend.language import Spoken


class Speller:
    """Loads its rules on first use (about a second)."""

    @cached_property
    def _normalizers(self) -> dict[Spoken, Normalizer]:
        return {
            "en": Normalizer(lang="en", operator="tn"),
            "zh": Normalizer(lang="zh", operator="tn", traditional_to_simple=False),
        }

    def __call__(self, text: str, language: Spoken) -> str:
        """Text in words; spaces at its ends stay."""
        core = text.strip()
        if not core or not any(not char.isalpha() for char in core):
            return text
        start = text[: len(text) - len(text.lstrip())]
        end = text[len(text.rstrip()) :]
        return f"{start}{self._normalizers[language].normalize(core)}{end}"
