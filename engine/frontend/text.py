"""Text of one piece to phonemes: one string for English, Mandarin and both in one sentence."""

from __future__ import annotations

from dataclasses import dataclass

from engine.api import Language, SpeechError
from engine.frontend.english import English
from engine.frontend.language import Spoken, main_language, runs
from engine.frontend.mandarin import Mandarin
from engine.frontend.phonemes import TERMINALS, Alphabet, has_sound


@dataclass(frozen=True, slots=True)
class Reading:
    """How a piece is read: its language, its words, its phonemes."""

    language: Spoken
    words: str
    phonemes: str


class TextFrontend:
    """Loads the lexicons (about two seconds, 300 MB); `read` then takes about a millisecond."""

    def __init__(self, alphabet: Alphabet) -> None:
        self._alphabet = alphabet
        self._english = English()
        self._mandarin = Mandarin()

    def read(self, text: str, language: Language = "auto") -> Reading:
        """Raises `SpeechError`: `empty_text`, or `unpronounceable` when nothing can be said."""
        if not text.strip():
            raise SpeechError("empty_text", "There is no text to speak.")
        main = main_language(text) if language == "auto" else language
        phonemes = self._alphabet.clean(self._phonemes(text, main))
        if not has_sound(phonemes):
            raise SpeechError("unpronounceable", "Nothing in the text can be spoken.")
        if phonemes[-1] not in TERMINALS:
            phonemes += "."
        return Reading(main, text, phonemes)

    def _phonemes(self, text: str, main: Spoken) -> str:
        readers = {"en": self._english.phonemes, "zh": self._mandarin.phonemes}
        return " ".join(readers[run.language](run.text) for run in runs(text, main))
