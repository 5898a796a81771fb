"""Written characters to plain ones: what cannot be spoken goes, variants become one form.

Emoji, pictographs and scripts other than Latin, Greek letters and Chinese are dropped: the voice
has no sounds for them, and a name read out for every smiley is worse than none.
"""

from __future__ import annotations

import re
import unicodedata

_SAME = str.maketrans(
    {
        "\u2018": "'", "\u2019": "'", "\u201b": "'", "\u02bc": "'", "\u2032": "'", "\uff07": "'",
        "\u201c": "“", "\u201d": "”", "\u201e": "“", "\u201f": "“", "\u2033": '"',
        "\u2010": "-", "\u2011": "-", "\u2012": "-", "\u2212": "-", "\ufe63": "-", "\uff0d": "-",
        "\u2015": "—", "\u2e3a": "—", "\u2e3b": "—",
        "\u2024": ".", "\u22ef": "…", "\u2219": "·", "\u30fb": "·", "\u2022": "·",
        "\u2215": "/", "\u2044": "/", "\u00d7": "×", "\u2715": "×", "\u2716": "×",
        "\u200b": "", "\u00ad": "", "\ufeff": "", "\u2060": "", "\u200c": "", "\u200d": "",
        "\ufe0e": "", "\ufe0f": "", "\u20e3": "",
    }
)  # fmt: skip
_GREEK = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "ζ": "zeta",
    "η": "eta", "θ": "theta", "ι": "iota", "κ": "kappa", "λ": "lambda", "μ": "mu", "ν": "nu",
    "ξ": "xi", "ο": "omicron", "π": "pi", "ρ": "rho", "ς": "sigma", "σ": "sigma", "τ": "tau",
    "υ": "upsilon", "φ": "phi", "χ": "chi", "ψ": "psi", "ω": "omega",
}  # fmt: skip
_GREEK_WORD = re.compile("[\u0370-\u03ff\u1f00-\u1fff]+")
_FRACTIONS = {
    "½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅕": "1/5", "⅖": "2/5",
    "⅗": "3/5", "⅘": "4/5", "⅙": "1/6", "⅚": "5/6", "⅛": "1/8", "⅜": "3/8", "⅝": "5/8",
    "⅞": "7/8",
}  # fmt: skip
_FRACTION = re.compile(r"(\d)?([" + "".join(_FRACTIONS) + "])")
_KEPT_SYMBOLS = frozenset("°²³±×÷√∞≈≠≤≥→%‰$£€¥₹₩₽₿¢§©µ+=<>~^|`·№℃℉㎡㎏㎞")
_WIDE_KEPT = frozenset("，。！？：；（）、《》「」『』【】￥〈〉〔〕")
_LINES = re.compile(r"[ \t]*(?:\r\n|[\n\r\v\f\x85\u2028\u2029])\s*")
_SPACES = re.compile(r"[^\S\n]+")
_OPEN_LINE = re.compile(r"(?<=[\w%°)\]”\"'])\n(?=\S)")
_ENDLESS = re.compile(r"([!?。！？，,~\-—_=*#.])\1{3,}")


def plain(text: str) -> str:
    """One line of plain characters. Line breaks end a sentence where no mark does."""
    text = unicodedata.normalize("NFC", text).translate(_SAME)
    text = _FRACTION.sub(lambda m: (m[1] + " " if m[1] else "") + _FRACTIONS[m[2]], text)
    text = _GREEK_WORD.sub(_greek, text)
    text = "".join(map(_one, text))
    text = _LINES.sub("\n", text.strip())
    text = _OPEN_LINE.sub(". ", text).replace("\n", " ")
    text = _ENDLESS.sub(lambda m: m[1] * 3, text)
    return _SPACES.sub(" ", text).strip()


def _one(character: str) -> str:
    """The character, its plain form, a space in its place, or nothing."""
    if character.isascii():
        return character if character.isprintable() or character in "\t\n\r\v\f" else " "
    if character in _WIDE_KEPT or character in _KEPT_SYMBOLS:
        return character
    category = unicodedata.category(character)
    if category in ("Zs", "Zl", "Zp"):
        return "\n" if category != "Zs" else " "
    if category[0] in "CM":
        return "\n" if character == "\x85" else ""
    if "\uff01" <= character <= "\uff5e" or category in ("No", "Nl"):
        return _compatible(character)
    if category[0] == "L":
        name = unicodedata.name(character, "")
        if name.startswith("CJK") or character == "〇":
            return unicodedata.normalize("NFKC", character)
        if name.startswith(("LATIN", "FULLWIDTH LATIN")):
            return unicodedata.normalize("NFKC", character)
        return " "
    if category == "Nd":
        return str(unicodedata.digit(character))
    if category[0] == "P":
        return character
    return " "


def _compatible(character: str) -> str:
    form = unicodedata.normalize("NFKC", character)
    return form if form.isascii() else " "


def _greek(word: re.Match[str]) -> str:
    """Letters used as symbols by name; Greek words have no reading here."""
    letters = unicodedata.normalize("NFD", word[0]).lower()
    names = [_GREEK[c] for c in letters if c in _GREEK]
    return f" {names[0]} " if len(names) == 1 else " "
