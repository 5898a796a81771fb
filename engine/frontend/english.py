"""English words to phonemes, as the teacher of the English voice reads them."""

from __future__ import annotations

import re
import unicodedata

from hibari.g2p import G2P
from hibari.tts import Hibari

from engine.frontend.phonemes import TERMINALS

_VOWELLESS = re.compile(r"(?<![\w.'’])[bcdfghjklmnpqrstvwxz]{2,6}(?![\w'’]|\.\w)", re.I)
_ACCENTED = re.compile(r"[^\W\d_]*[\u00c0-\u024f\u1e00-\u1eff][^\W\d_]*")
_LETTER_A = re.compile(r"(?<![\w'’.-])A(?=\s*(?:[,;:!?…)]|\.(?!\w)|$)|\s+(?:plus|minus)\b)")
_INTERJECTIONS = frozenset(("hm", "hmm", "mm", "mmm", "sh", "shh", "shhh", "psst", "brr", "brrr"))


class English:
    """Loading takes about a second."""

    def __init__(self) -> None:
        self._g2p = G2P()
        # The network for unknown words loads with the first of them.
        self._g2p("zyxelwort")

    def phonemes(self, words: str) -> str:
        """Phonemes of English words (see `english_rules`), sentence by sentence."""
        words = _VOWELLESS.sub(self._spelled, words)
        words = _ACCENTED.sub(self._known_form, words)
        # Not the article: hibari takes phonemes in this notation.
        words = _LETTER_A.sub("[A](/ˈA/)", words)
        sentences = Hibari.split_sentences(words)
        return " ".join(filter(None, map(self._sentence, sentences)))

    def _sentence(self, sentence: str) -> str:
        phonemes: str = self._g2p(sentence, normalize_text=False)
        # An abbreviation at the end ("P.M.") swallows the mark that ends the sentence.
        if sentence.endswith(".") and phonemes and phonemes[-1] not in TERMINALS:
            phonemes += "."
        return phonemes

    def _spelled(self, found: re.Match[str]) -> str:
        word = found[0]
        known = word.lower() in _INTERJECTIONS or self._has(word) or self._has(word.lower())
        return word if known else ".".join(word.upper())

    def _known_form(self, found: re.Match[str]) -> str:
        """The word as the lexicon has it, else without its accents.

        A last é is sounded: those words are left to the network for unknown words.
        """
        word = found[0]
        if word.rstrip("s").endswith(("é", "ée")):
            return word
        return word if self._has(word) or self._has(word.lower()) else without_accents(word)

    def _has(self, word: str) -> bool:
        lexicon = self._g2p.lexicon
        return word in lexicon.golds or word in lexicon.silvers


def without_accents(word: str) -> str:
    """`São` -> Sao, `Łódź` -> Lodz."""
    special = str.maketrans(
        {
            "ø": "o",
            "Ø": "O",
            "ł": "l",
            "Ł": "L",
            "ß": "ss",
            "đ": "d",
            "Đ": "D",
            "æ": "ae",
            "Æ": "Ae",
            "œ": "oe",
            "Œ": "Oe",
            "ı": "i",
            "þ": "th",
        }
    )
    decomposed = unicodedata.normalize("NFD", word.translate(special))
    return "".join(c for c in decomposed if not unicodedata.combining(c))
