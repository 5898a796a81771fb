"""The voices of a packed voice: who they are, and the reference each speaks after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.api import SpeechError, Voice
from engine.checkpoints.base import Codes
from engine.frontend.language import Spoken
from engine.frontend.phonemes import Alphabet
from engine.lm_config import LmConfig

AUTOMATIC = "default"


@dataclass(frozen=True, slots=True)
class Layout:
    """Ids around phonemes and frames: `[start_text] [speed] phonemes.. [start_codes] frames..`."""

    start_text: int
    start_codes: int
    first_speed: int
    speeds: tuple[float, ...]

    def speed(self, factor: float) -> int:
        """Index of the trained speed nearest to `factor`."""
        return min(range(len(self.speeds)), key=lambda i: abs(self.speeds[i] - factor))

    def piece(self, phonemes: Sequence[int], speed: int) -> tuple[int, ...]:
        """Ids of one utterance up to its first frame; `speed` is an index."""
        return (self.start_text, self.first_speed + speed, *phonemes, self.start_codes)


@dataclass(frozen=True, slots=True)
class Reference:
    """What a voice said in one language: ids up to the first frame, and the frames.

    `pace` is how many frames the voice takes for a phoneme, over many sentences.
    """

    head: tuple[int, ...]
    codes: Codes
    pace: float

    def padded(self, block: int) -> Codes:
        """The frames with the silence at their end held until the prompt fills whole blocks."""
        missing = -(len(self.head) + len(self.codes)) % block
        return np.concatenate([self.codes, np.repeat(self.codes[-1:], missing, axis=0)])


class Voices:
    """The catalogue in `voices.json`."""

    def __init__(
        self, catalogue: Mapping[str, Any], layout: Layout, alphabet: Alphabet, lm: LmConfig
    ) -> None:
        self._automatic: dict[Spoken, str] = catalogue["default"]
        self._cards: list[dict[str, Any]] = catalogue["voices"]
        self.references: dict[tuple[str, str], Reference] = {
            (card["id"], language): _reference(card["speaker_token"], prompt, layout, alphabet, lm)
            for card in self._cards
            for language, prompt in card["prompts"].items()
        }

    def listed(self) -> list[Voice]:
        named = [
            Voice(
                id=card["id"],
                name=card["name"],
                languages=tuple(card["languages"]),
                gender=card["gender"],
                description=card["description"],
            )
            for card in self._cards
        ]
        names = {card["id"]: card["name"] for card in self._cards}
        chosen = ", ".join(f"{names[v]} ({language})" for language, v in self._automatic.items())
        description = f"By the language of each piece: {chosen}."
        languages = tuple(self._automatic)
        return [Voice(AUTOMATIC, "Automatic", languages, description=description), *named]

    def resolve(self, voice: str, language: Spoken) -> tuple[str, str]:
        """Who speaks, and which of their references: the one in the piece's language if there is.

        Raises `SpeechError("unknown_voice")`.
        """
        name = self._automatic[language] if voice == AUTOMATIC else voice
        own = [spoken for known, spoken in self.references if known == name]
        if not own:
            known = ", ".join([AUTOMATIC, *(card["id"] for card in self._cards)])
            raise SpeechError("unknown_voice", f"There is no voice {voice!r}; there are {known}.")
        return name, language if language in own else own[0]


def _reference(
    speaker: int, prompt: Mapping[str, Any], layout: Layout, alphabet: Alphabet, lm: LmConfig
) -> Reference:
    phonemes = alphabet.encode(prompt["phonemes"])
    drawn = np.asarray(prompt["codes"], np.int16)
    codes = np.empty((len(drawn), lm.codebooks), np.int16)
    codes[:, lm.sampled_codebooks] = drawn
    for codebook, code in lm.fixed_codes.items():
        codes[:, codebook] = code
    return Reference((speaker, *layout.piece(phonemes, prompt["speed"])), codes, prompt["pace"])
