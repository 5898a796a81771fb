"""The last step: one piece's spoken text, clean and with the lexicon applied."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from gateway import characters as ch
from gateway.spoken.mapped import Edit, Run, Span, Spoken, edited, joined
from gateway.spoken.patterns import CONTROL_TAG, LINE
from gateway.spoken.settings import SpokenSettings

_WIDE_MARKS: Final = "，。；：！？、」』）】》"
_CLINGS: Final = "[，。；：！？、]|[,.;:!?)](?:\\s|$)"  # takes no white space before it
_CLINGING: Final = re.compile(_CLINGS)
_UNTIDY: Final = re.compile(
    rf"\s(?:(?<=[^ ])\s*|\s+|(?<=[{_WIDE_MARKS}].)|(?={_CLINGS}))", re.DOTALL
)


def rendered(runs: Sequence[Run], settings: SpokenSettings) -> Spoken:
    """What the engine is given for `runs`, the spoken text of one piece."""
    if len(runs) == 1 and runs[0].exact and not len(settings.lexicon):  # the usual case, made short
        written = runs[0].text
        plain = written.strip()
        if plain and "[" not in plain and _UNTIDY.search(plain) is None:
            start = runs[0].start + written.index(plain)
            return Spoken(plain, (Span(0, len(plain), start, start + len(plain), True),))
    if any("[" in run.text for run in runs):
        runs = _without_unruly_tags(runs, settings.control_tags)
    runs = _stripped(runs)
    text = _text(runs)
    edits = [Edit(gap.start(), gap.end(), _tidied(text, gap)) for gap in _UNTIDY.finditer(text)]
    if edits:
        runs = edited(runs, edits)
        text = _text(runs)
    said = settings.lexicon.edits(text)
    return joined(edited(runs, said) if said else runs)


def _text(runs: Sequence[Run]) -> str:
    return "".join([run.text for run in runs])


def _without_unruly_tags(runs: Sequence[Run], style: bool) -> Sequence[Run]:
    """Take out control tags that are not allowed, also those that markup hid until now."""
    edits = [
        Edit(tag.start(), tag.end(), " ")
        for tag in CONTROL_TAG.finditer(_text(runs))
        if not (style and tag.group("style"))
    ]
    return edited(runs, edits)


def _stripped(runs: Sequence[Run]) -> Sequence[Run]:
    """Runs without white space at the ends."""
    low, high = 0, len(runs)
    while low < high and (not runs[low].text or runs[low].text.isspace()):
        low += 1
    while high > low and (not runs[high - 1].text or runs[high - 1].text.isspace()):
        high -= 1
    kept = list(runs[low:high])
    if kept and kept[-1].text[-1].isspace():
        kept[-1] = kept[-1].part(0, len(kept[-1].text.rstrip()))
    if kept and kept[0].text[0].isspace():
        first = kept[0].text
        kept[0] = kept[0].part(len(first) - len(first.lstrip()), len(first))
    return kept


def _tidied(text: str, gap: re.Match[str]) -> str:
    """What takes the place of white space: a full stop where a line ends without a mark."""
    before = text[gap.start() - 1]
    if before.isalnum() and (LINE in gap.group() or gap.group().count("\n") > 1):
        return "。" if ch.CJK.match(before) else ". "
    if before in _WIDE_MARKS or _CLINGING.match(text, gap.end()):
        return ""
    return " "
