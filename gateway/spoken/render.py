"""The last step: one piece's spoken text, clean and with the lexicon applied."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Final

from gateway import characters as ch
from gateway.spoken.mapped import Edit, Run, Spoken, edited, joined
from gateway.spoken.patterns import CONTROL_TAG, LINE
from gateway.spoken.settings import SpokenSettings

_CLINGS: Final = r"[，。；：！？、]|[,.;:!?)](?:\s|$)"  # takes no white space before it
_WIDE_MARKS: Final = frozenset("，。；：！？、”’」』）】》")
_CLINGING: Final = re.compile(_CLINGS)
_UNTIDY: Final = re.compile(rf"^\s+|\s+$|\s+(?={_CLINGS})|[^\S ]\s*| \s+|[\ud800-\udfff]+")


def rendered(runs: Sequence[Run], settings: SpokenSettings) -> Spoken:
    """What the engine is given for `runs`, the spoken text of one piece."""
    rules = (partial(_unruly_tags, style=settings.control_tags), _untidy, settings.lexicon.edits)
    for edits_for in rules:
        edits = edits_for("".join(run.text for run in runs))
        if edits:
            runs = edited(runs, edits)
    return joined(runs)


def _unruly_tags(text: str, style: bool) -> list[Edit]:
    """Control tags that are not allowed, also those put together by markup that was taken out."""
    if "[" not in text:
        return []
    return [
        Edit(tag.start(), tag.end(), " ")
        for tag in CONTROL_TAG.finditer(text)
        if not (style and tag.group("style"))
    ]


def _untidy(text: str) -> list[Edit]:
    return [Edit(gap.start(), gap.end(), _tidied(text, gap)) for gap in _UNTIDY.finditer(text)]


def _tidied(text: str, gap: re.Match[str]) -> str:
    """What takes the place of white space: nothing at the edges, a full stop where a line ends
    without a mark."""
    if gap.start() == 0 or gap.end() == len(text) or not gap.group().isspace():
        return ""
    before = text[gap.start() - 1]
    if before.isalnum() and (LINE in gap.group() or gap.group().count("\n") > 1):
        return "。" if ch.CJK.match(before) else ". "
    if _CLINGING.match(text, gap.end()) or before in _WIDE_MARKS:
        return ""
    return " "
