"""A pinyin syllable in the phoneme alphabet of the embedded voice.

The transcription is misaki's for Mandarin (Apache-2.0), which the teachers of the voice were
trained on: IPA with affricates as ligatures, and one arrow after the vowel for the tone.
"""

from __future__ import annotations

from functools import lru_cache

from pypinyin.contrib.tone_convert import to_finals, to_initials, to_normal

_TONES = {"1": "→", "2": "↗", "3": "↓", "4": "↘", "5": ""}
_INITIALS = {
    "b": "p", "c": "ʦʰ", "ch": "ꭧʰ", "d": "t", "f": "f", "g": "k", "h": "x", "j": "ʨ", "k": "kʰ",
    "l": "l", "m": "m", "n": "n", "p": "pʰ", "q": "ʨʰ", "r": "ɻ", "s": "s", "sh": "ʂ", "t": "tʰ",
    "x": "ɕ", "z": "ʦ", "zh": "ꭧ",
}  # fmt: skip
_FINALS = {
    "a": "a0", "ai": "ai0", "an": "a0n", "ang": "a0ŋ", "ao": "au0", "e": "ɤ0", "ei": "ei0",
    "en": "ə0n", "eng": "ə0ŋ", "i": "i0", "ia": "ja0", "ian": "jɛ0n", "iang": "ja0ŋ", "iao": "jau0",
    "ie": "je0", "in": "i0n", "iou": "jou0", "ing": "i0ŋ", "iong": "jʊ0ŋ", "ong": "ʊ0ŋ",
    "ou": "ou0", "u": "u0", "uei": "wei0", "ua": "wa0", "uai": "wai0", "uan": "wa0n",
    "uen": "wə0n", "uang": "wa0ŋ", "ueng": "wə0ŋ", "uo": "wo0", "o": "wo0", "ü": "y0", "üe": "ɥe0",
    "üan": "ɥɛ0n", "ün": "y0n",
}  # fmt: skip
_WHOLE = {
    "hm": "hm0", "hng": "hŋ0", "m": "m0", "n": "n0", "ng": "ŋ0", "io": "jɔ0", "ê": "ɛ0",
    "er": "ɚ0", "o": "ɔ0",
}  # fmt: skip
_APICAL_INITIALS = frozenset(("zh", "ch", "sh", "r", "z", "c", "s"))


@lru_cache(maxsize=4096)
def syllable_phonemes(syllable: str) -> str:
    """Phonemes of a syllable as pypinyin's `Style.TONE3` writes it (`zhong1`, `lv4`, `ma5`).

    Returns "" for what is no pinyin syllable.
    """
    tone = _TONES.get(syllable[-1:])
    if tone is None:
        return ""
    plain = to_normal(syllable)
    body = _WHOLE.get(plain)
    if body is None:
        initial = to_initials(plain, strict=True)
        final = to_finals(plain, strict=True, v_to_u=True)
        if initial in _APICAL_INITIALS and final == "i":
            body = _INITIALS[initial] + "ɨ0"
        elif final in _FINALS and (initial in _INITIALS or not initial):
            body = _INITIALS.get(initial, "") + _FINALS[final]
        else:
            return ""
    return body.replace("0", tone)
