"""Mandarin words to phonemes: jieba cuts words, pypinyin reads them, `pinyin` transcribes."""

from __future__ import annotations

import re
from typing import Any

import jieba
from pypinyin import Style, lazy_pinyin

from engine.frontend.han import HAN
from engine.frontend.pinyin import syllable_phonemes

_SEGMENT = re.compile(f"[{HAN}]+|[^{HAN}]+")
_IS_HAN = re.compile(f"[{HAN}]")
_MARKS = str.maketrans(
    {
        "、": ", ", "，": ", ", "。": ". ", "．": ". ", "！": "! ", "：": ": ", "；": "; ",
        "？": "? ", "«": " “", "»": "” ", "《": " “", "》": "” ", "「": " “", "」": "” ",
        "『": " “", "』": "” ", "【": " “", "】": "” ", "（": " (", "）": ") ",
    }
)  # fmt: skip


def spaced_marks(text: str) -> str:
    """Chinese punctuation as its western sisters, with the space those are written with."""
    return text.translate(_MARKS)


class Mandarin:
    """Words only: numbers and symbols are spelled out beforehand. Loading takes about a second."""

    def __init__(self) -> None:
        self._cutter = _load_cutter()

    def phonemes(self, text: str) -> str:
        """Phonemes of Chinese text; what is not Chinese is passed through."""
        out = []
        for part in _SEGMENT.findall(spaced_marks(text)):
            if _IS_HAN.match(part):
                out.append(" ".join(_word_phonemes(word) for word in self._cutter.lcut(part)))
            else:
                out.append(part)
        return "".join(out).strip()


def _word_phonemes(word: str) -> str:
    syllables = lazy_pinyin(word, style=Style.TONE3, neutral_tone_with_five=True)
    return "".join(map(syllable_phonemes, syllables))


def _load_cutter() -> Any:
    # jieba's own start keeps a marshalled cache under a fixed name in the shared temporary
    # directory, which any user of the machine may have written, and logs to standard error.
    cutter = jieba.Tokenizer()
    cutter.FREQ, cutter.total = cutter.gen_pfdict(cutter.get_dict_file())
    cutter.initialized = True
    return cutter
