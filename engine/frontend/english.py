"""English words to phonemes, as the teacher of the English voice reads them."""

from __future__ import annotations

from hibari.g2p import G2P
from hibari.tts import Hibari


class English:
    """Loading takes about a second; unknown words load a small network on first use."""

    def __init__(self) -> None:
        self._g2p = G2P()
        self._g2p("warm zyxel")

    def phonemes(self, text: str) -> str:
        """Phonemes of English text, sentence by sentence."""
        sentences = Hibari.split_sentences(text)
        return " ".join(filter(None, map(self._g2p, sentences)))
