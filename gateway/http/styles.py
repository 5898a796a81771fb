"""From the words of other APIs for how to speak to the styles that a checkpoint offers."""

from __future__ import annotations

import re
from collections.abc import Sequence

NEUTRAL = "neutral"
_NOTHING = (NEUTRAL, "default", "none", "")
_WORDS = {
    "cheerful": "laugh_1",
    "happy": "laugh_1",
    "amused": "laugh_2",
    "laughing": "laugh_2",
    "casual": "oral_5",
    "conversational": "oral_5",
    "hesitant": "oral_8",
    "calm": "break_6",
    "slow": "break_6",
}
"""Laughs, spoken fillers and pauses: what models of the ChatTTS family can be asked for."""
_MOST_FILLERS = 9


def emotions(offered: Sequence[str]) -> list[str]:
    """Every word that `emotion` takes here, the neutral one first."""
    words = [word for word, style in _WORDS.items() if style in offered]
    return [NEUTRAL, *words, *offered]


def of_emotion(emotion: str | None, offered: Sequence[str]) -> str | None:
    """The style of an emotion, or of styles by their own names; empty for a neutral one. None: it
    is not offered."""
    wish = (emotion or "").strip().lower()
    if wish in _NOTHING:
        return ""
    if wish in _WORDS:
        wish = _WORDS[wish]
    return wish if wish and all(name in offered for name in wish.split()) else None


def of_instructions(instructions: str, offered: Sequence[str]) -> str | None:
    """The styles that free text asks for, one of a kind; None when it asks for none there is."""
    found: dict[str, str] = {}
    for word in re.findall(r"\w+", instructions.lower()):
        style = _WORDS.get(word, word)
        if style in offered:
            found.setdefault(style.split("_")[0], style)
    return " ".join(found.values()) or None


def of_amount(amount: float, offered: Sequence[str]) -> str | None:
    """The style of ElevenLabs' exaggeration, 0 to 1: spoken fillers. None: it is not offered."""
    style = f"oral_{round(min(1.0, max(0.0, amount)) * _MOST_FILLERS)}"
    return style if style in offered else None
