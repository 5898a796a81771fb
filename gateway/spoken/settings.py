"""What is spoken of a text, and how."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from gateway.spoken.lexicon import Lexicon


@dataclass(frozen=True, slots=True)
class SpokenSettings:
    """Rules for turning written text into spoken text.

    `code_phrase` stands for a code block; empty says nothing, None is "Code omitted." or "代码略。"
    by language. `emoji`: left out, or said by their (English) Unicode names. `urls`: bare links are
    said by their host name, left out, or left as they are. `control_tags`: whether ChatTTS control
    tags such as `[laugh]` reach the engine; they are never read aloud. `language` chooses the words
    for formulas and code: that of the text just before when `auto`.
    """

    code_phrase: str | None = None
    emoji: Literal["drop", "name"] = "drop"
    urls: Literal["host", "drop", "keep"] = "host"
    control_tags: bool = False
    language: Literal["auto", "en", "zh"] = "auto"
    lexicon: Lexicon = field(default_factory=lambda: Lexicon({}))
