"""Text of one piece to phonemes: one string for English, Mandarin and both in one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from engine.api import Language, SpeechError
from engine.frontend.characters import plain
from engine.frontend.english import English
from engine.frontend.english_rules import english_words
from engine.frontend.language import Run, Spoken, main_language, runs
from engine.frontend.mandarin import Mandarin, spaced_marks
from engine.frontend.mandarin_rules import mandarin_words
from engine.frontend.phonemes import TERMINALS, Alphabet, has_sound

_CLOSING = ' ”")'


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
        self.sounds = lru_cache(maxsize=8192)(self._sounds)
        """Phonemes of a word by itself, "" of one without sound: (word, language) -> phonemes."""

    def read(self, text: str, language: Language = "auto") -> Reading:
        """Raises `SpeechError`: `empty_text`, or `unpronounceable` when nothing can be said."""
        if not text.strip():
            raise SpeechError("empty_text", "There is no text to speak.")
        text = plain(text)
        main = main_language(text) if language == "auto" else language
        stretches = spoken_runs(text, main)
        phonemes = self._alphabet.clean(" ".join(map(self._phonemes, stretches)))
        if not has_sound(phonemes):
            raise SpeechError("unpronounceable", "Nothing in the text can be spoken.")
        if phonemes.rstrip(_CLOSING)[-1] not in TERMINALS:
            phonemes += "."
        return Reading(main, " ".join(run.text.strip() for run in stretches), phonemes)

    def _sounds(self, word: str, language: Language) -> str:
        try:
            return self.read(word, language).phonemes
        except SpeechError:
            return ""

    def _phonemes(self, run: Run) -> str:
        if run.language == "zh":
            return self._mandarin.phonemes(run.text)
        return self._english.phonemes(spaced_marks(run.text))


def spoken_runs(text: str, main: Spoken) -> list[Run]:
    """The words to be said, by language.

    Numbers are read in the language of the sentence when that is Chinese ("GPT 四"); in an English
    sentence, in the language of what they stand next to.
    """
    if main == "zh":
        stretches = runs(mandarin_words(text), "zh")
        return [
            Run("en", english_words(run.text)) if run.language == "en" else run for run in stretches
        ]
    return [
        Run(run.language, (english_words if run.language == "en" else mandarin_words)(run.text))
        for run in runs(text, "en")
    ]
