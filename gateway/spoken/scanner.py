"""The state of a reading: what text has come, how far it is read, what was emitted of it."""

from __future__ import annotations

from typing import Final, NamedTuple

import regex

from gateway import characters as ch
from gateway.spoken.settings import SpokenSettings

_CONTEXT: Final = 64


class NeedMore(Exception):
    """More text must come before this construct can be told from plain text."""


class Segment(NamedTuple):
    """Spoken `text` for the written range `start..end`.

    `exact`: they are the same text. `leading`: opening markup, which goes with what follows it.
    """

    text: str
    start: int
    end: int
    exact: bool
    leading: bool


class Opening(NamedTuple):
    """The tag that opens an element, as written, and where it starts in the writing."""

    tag: str
    start: int


class Scanner:
    """Text as it arrives, with the segments made of it.

    Indices are into `text`, whose first code point stands at `base` of the written text. It is
    read up to `read`; the code point before that is kept to look back at. `size` is how much of it
    was written: while `final`, the text goes on with a line end.
    """

    def __init__(self, settings: SpokenSettings) -> None:
        self.settings = settings
        self.text = ""
        self.read = 0
        self.size = 0
        self.base = 0
        self.final = False
        self.out: list[Segment] = []
        self.line_start = True
        self.bare = False
        """Whether what was read of the line since its start says nothing."""
        self.heading = False
        self.table = False
        self.fence = ""
        """The fence that ends the code block, if in one."""
        self.until: regex.Pattern[str] | None = None
        """What ends the element that is not spoken, if in one."""
        self.opening = Opening("", 0)
        """Of that element."""
        self.link_ends: list[tuple[int, int]] = []
        """Written ranges that end the links and images that are open."""
        self._spoken = ""  # the last of what was kept

    def match(self, pattern: regex.Pattern[str], index: int, limit: int) -> regex.Match[str] | None:
        """Match at `index`, of what `limit` code points and one more to look at show.

        Raises `NeedMore` while those have not all come and could still show one.
        """
        end = index + limit + 1
        short = len(self.text) < end
        found = pattern.match(self.text, index, end, partial=short and not self.final)
        if found is not None and found.partial:
            raise NeedMore
        return found

    def before(self, index: int) -> str:
        """The code point before `index`; empty at the start of the turn."""
        return self.text[index - 1] if index else ""

    def after(self, index: int) -> str:
        """The code point at `index`. Raises `NeedMore`."""
        if index >= len(self.text):
            raise NeedMore
        return self.text[index]

    def mandarin(self) -> bool:
        """Whether what is put into words now should be in Mandarin."""
        if self.settings.language != "auto":
            return self.settings.language == "zh"
        return ch.CJK.search(self._recent()) is not None

    def _recent(self) -> str:
        kept = "".join(segment.text for segment in self.out[-_CONTEXT:] if segment.exact)
        return (self._spoken + kept[-_CONTEXT:])[-_CONTEXT:]

    def keep(self, low: int, high: int) -> int:
        """Speak `low..high` as written; returns `high`."""
        text = self.text[low : min(high, self.size)]
        if text:
            self.bare = self.bare and text.isspace()
            start = self.base + low
            self.out.append(Segment(text, start, start + len(text), True, False))
        return high

    def say(self, text: str, low: int, high: int, *, leading: bool = False) -> int:
        """Speak `text` for the written `low..high`; returns `high`."""
        end = min(high, self.size)
        if low < end:
            self.bare = self.bare and not text.strip()
            self.out.append(Segment(text, self.base + low, self.base + end, False, leading))
        return high

    def drop(self, low: int, high: int, *, leading: bool = False) -> int:
        """Speak nothing for `low..high`; returns `high`."""
        return self.say("", low, high, leading=leading)

    def enter(self, until: regex.Pattern[str], low: int, high: int) -> None:
        """Speak nothing more until what ends the element that `low..high` opens."""
        self.until = until
        self.opening = Opening(self.text[low:high], self.base + low)

    def pass_on(self, text: str) -> None:
        """Read `text`, which is not empty, as plain; nothing may be open or held back."""
        self.bare = self.bare and text.isspace()
        self.base += self.size + len(text) - 1
        self.text = text[-1]
        self.read = self.size = 1
        self._spoken = (self._spoken + text)[-_CONTEXT:]

    def take(self, text: str) -> None:
        """More text has come."""
        self.text += text
        self.size = len(self.text)

    def close(self) -> None:
        """No more text comes: what is open ends here."""
        self.text += "\n"
        self.final = True

    def reopen(self) -> None:
        """More text may come after all."""
        self.text = self.text[: self.size]
        self.final = False
        self.line_start = self.text.endswith("\n")

    def forget(self, index: int) -> list[Segment]:
        """All before `index` is read; returns what was made of it."""
        self._spoken = self._recent()
        kept = max(0, index - 1)
        self.text = self.text[kept:]
        self.base += kept
        self.size -= kept
        self.read = index - kept
        out, self.out = self.out, []
        return out
