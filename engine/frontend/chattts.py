"""Text of one piece to ChatTTS tokens.

Numbers, signs and symbols are spelled out first; what is left is written with the letters, Han
characters and marks the model was trained on. Inline tags pass, every other control token in a text
is dropped: it is an instruction to the model and never something to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from pypinyin import Style, lazy_pinyin

from engine.api import Language, SpeechError
from engine.frontend.characters import plain
from engine.frontend.chattts_tokens import INLINE_TAGS, REFINE_TAGS, TAG, ChatTTSTokens
from engine.frontend.gb2312 import gb2312_characters
from engine.frontend.language import Spoken, main_language
from engine.frontend.text import spoken_runs

_SHORT = 4
"""Tokens below which a piece gets a pause behind it: a word alone otherwise ends in noise."""

_PAUSES = "，、, "
_STOPS = ".?。？"
_FULL_STOPS: dict[Spoken, str] = {"en": ".", "zh": "。"}
_MARKS: dict[Spoken, dict[int, str]] = {
    "zh": str.maketrans(
        {
            **dict.fromkeys(",;:；：—…·()（）[]【】{}<>《》〈〉「」『』-－~～/|", "，"),
            **dict.fromkeys(".!！", "。"),
            "?": "？",
        }
    ),
    "en": str.maketrans(
        {
            **dict.fromkeys(";:，、；：—…·()（）[]【】{}<>《》〈〉「」『』/|", ","),
            **dict.fromkeys("!！。", "."),
            **dict.fromkeys("-－~～", " "),
            "？": "?",
        }
    ),
}
"""Marks the model has learnt, in place of all others."""

_KEPT_MARKS = ",.?，。、？"
_CLUSTER = re.compile(rf"\s*([{_KEPT_MARKS}](?:[\s{_KEPT_MARKS}]*[{_KEPT_MARKS}])?)")
_CONTRACTIONS = {"re": " are", "ll": " will", "ve": " have", "m": " am", "d": " would"}
_CONTRACTION = re.compile(r"(?<=[A-Za-z])['’](re|ll|ve|m|d)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TokenText:
    """A piece as tokens. `refine` are the tags that ask for a refine pass, in order."""

    ids: tuple[int, ...]
    language: Spoken
    refine: tuple[str, ...]


class ChatTTSFrontend:
    """`homophones` replaces characters the voice is known to misread, one for one."""

    def __init__(self, tokens: ChatTTSTokens, homophones: Mapping[str, str] | None = None) -> None:
        self.tokens = tokens
        self._homophones = str.maketrans(dict(homophones or {}))

    def read(self, text: str, language: Language = "auto") -> TokenText:
        """Raises `SpeechError`: `empty_text`, or `unpronounceable` when nothing can be said."""
        if not text.strip():
            raise SpeechError("empty_text", "There is no text to speak.")
        refine = tuple(p for p in self._parts(text) if p in REFINE_TAGS)
        parts = [p for p in self._parts(text) if p not in REFINE_TAGS]
        words = "".join(p for p in parts if p not in INLINE_TAGS)
        main = main_language(words) if language == "auto" else language
        written = [p if p in INLINE_TAGS else self.write(p, main) for p in parts]
        if not any(char.isalnum() for p in written if p not in INLINE_TAGS for char in p):
            raise SpeechError("unpronounceable", "Nothing in the text can be spoken.")
        written[0] = written[0].lstrip(_KEPT_MARKS + " ")
        if written[-1] not in INLINE_TAGS:
            written[-1] = written[-1].rstrip(_PAUSES)
            if written[-1][-1:] not in _STOPS:
                written[-1] += _FULL_STOPS[main]
        ids: list[int] = []
        for part in written:
            ids += [self.tokens[part]] if part in INLINE_TAGS else self.tokens.encode(part)
        if len(ids) < _SHORT:
            ids.append(self.tokens["[uv_break]"])
        return TokenText(tuple(ids), main, refine)

    def write(self, text: str, language: Spoken) -> str:
        """Text without tags in words and marks the tokenizer knows."""
        # The tokenizer takes no notice of spaces, so runs may be joined by them.
        spelled = " ".join(run.text for run in spoken_runs(plain(text), language))
        # The marks come last: spelling needs the signs that they would replace.
        whole = _CONTRACTION.sub(lambda found: _CONTRACTIONS[found[1].lower()], spelled)
        marked = whole.translate(_MARKS[language]).translate(self._homophones)
        known = "".join(self._known(char) for char in marked)
        return _CLUSTER.sub(lambda found: _strongest(found[1]), known)

    def _parts(self, text: str) -> Iterator[str]:
        """Stretches of text, inline tags and refine tags, in order; other control tokens go."""
        at = 0
        for tag in TAG.finditer(text):
            if not self.tokens.has(tag.group()):
                continue
            if tag.start() > at:
                yield text[at : tag.start()]
            at = tag.end()
            if tag.group() in INLINE_TAGS or tag.group() in REFINE_TAGS:
                yield tag.group()
        if at < len(text):
            yield text[at:]

    def _known(self, char: str) -> str:
        """The character if the model can read it, one that sounds alike, or nothing."""
        if char in _KEPT_MARKS or char.isspace():
            return char
        if not char.isalnum():
            return ""
        if self.tokens.knows(char):
            return char
        return self._stand_ins.get(_reading(char), "")

    @cached_property
    def _stand_ins(self) -> Mapping[str, str]:
        """A known character for each Mandarin reading."""
        found: dict[str, str] = {}
        for char in gb2312_characters():
            if self.tokens.knows(char):
                found.setdefault(_reading(char), char)
        return found


def _reading(char: str) -> str:
    """Pinyin with tone; a character that has none is its own reading."""
    return str(lazy_pinyin(char, style=Style.TONE3)[0])


def _strongest(marks: str) -> str:
    """Of marks in a row the one that ends a sentence, else the first."""
    return next((mark for mark in marks if mark in _STOPS), marks[0])
