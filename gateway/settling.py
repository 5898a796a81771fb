"""Somebody else's live captions to text that is said once.

Live captions show the same words again and again: lines roll up, words are guessed and corrected.
Here every update is the whole text on the screen; what comes out are the words that are new and
will not change any more, each once and in order. Pure: times are given.
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher

from gateway.characters import CJK, CJK_CLASS

_TOKEN = re.compile(rf"\s*(?:[{CJK_CLASS}]|[^\s{CJK_CLASS}]+)")
_ENDS = re.compile(r"[.!?。！？…]['\"”’)\]」』]*$")
_REMEMBERED = 80
"""Words said, to know them again when they roll up."""
_ALIKE = 0.6
"""Likeness of letters from which new words are the old ones, corrected."""
_MISSED = 3
"""So many of the last words said may be missing or different in a corrected caption."""


def tokens(text: str) -> list[str]:
    """Words with the white space before them; each CJK character alone."""
    return _TOKEN.findall(text)


def _key(token: str) -> str:
    """What makes two guesses the same word."""
    bare = token.strip()
    return bare.strip(".,;:!?。，、；：！？…\"'“”‘’()[]-–—").casefold() or bare


class Settler:
    """`show` every update; `settled` words come out. `settle` seconds unchanged is settled."""

    def __init__(self, settle: float = 0.7) -> None:
        self._settle = settle
        self._said: list[str] = []
        self._open: list[str] = []
        """New words on the screen, which may yet change."""
        self._since: list[float] = []
        """When each of them first stood there as it is."""
        self._closed = 0
        """How many of the words said are of text that had an end: no correction of that comes."""

    @property
    def deadline(self) -> float | None:
        """When the next word will have settled, if nothing changes."""
        return self._since[0] + self._settle if self._since else None

    def show(self, text: str, now: float, *, final: bool = False) -> list[tuple[str, float]]:
        """An update: the text on the screen now. Returns words settled by it, each with the time
        it was first seen. `final`: it will not change any more."""
        screen = tokens(text)
        fresh = self._fresh(screen)
        # What went off the screen cannot change any more.
        gone = self._gone(fresh)
        out = self._take(gone)
        if gone:
            fresh = self._fresh(screen)
        self._replace(fresh, now)
        if final or _ENDS.search(text.rstrip()):
            out += self.finish()
            self._closed = len(self._said)
        return out + self.settled(now)

    def settled(self, now: float) -> list[tuple[str, float]]:
        """Words that have stood unchanged for long enough by now."""
        count = 0
        while count < len(self._since) and now >= self._since[count] + self._settle:
            count += 1
        return self._take(count)

    def finish(self) -> list[tuple[str, float]]:
        """No more updates: all that is left."""
        return self._take(len(self._open))

    def _fresh(self, screen: list[str]) -> list[str]:
        """What of the screen comes after the words already said."""
        said = [_key(token) for token in self._said]
        shown = [_key(token) for token in screen]
        for size in range(min(len(said), len(shown)), 0, -1):
            if said[-size:] == shown[:size]:
                return screen[size:]
        late = said[self._closed :]
        blocks = SequenceMatcher(None, late, shown, autojunk=False).get_matching_blocks()
        for block in reversed(blocks):
            missed = len(late) - block.a - block.size
            if block.size >= 2 and missed <= _MISSED:
                return screen[block.b + block.size + missed :]
        return screen

    def _gone(self, fresh: list[str]) -> int:
        """How many of the open words are not on the screen any more, not even corrected."""
        old, new = [_key(token) for token in self._open], [_key(token) for token in fresh]
        for size in range(min(len(old), len(new)), 0, -1):
            if old[-size:] == new[:size]:
                return len(old) - size
        if not old or not new:
            return 0
        before, after = "".join(old), "".join(new[: len(old) + 1])
        alike = SequenceMatcher(None, before, after, autojunk=False).ratio()
        return 0 if alike >= _ALIKE else len(old)

    def _replace(self, fresh: list[str], now: float) -> None:
        since = []
        unchanged = True
        for at, token in enumerate(fresh):
            unchanged = unchanged and at < len(self._open) and self._open[at] == token
            since.append(self._since[at] if unchanged else now)
        self._open, self._since = fresh, since

    def _take(self, count: int) -> list[tuple[str, float]]:
        taken = []
        for token, since in zip(self._open[:count], self._since[:count], strict=True):
            apart = bool(self._said) and _touch(self._said[-1], token)
            taken.append((" " + token if apart else token, since))
            self._said.append(token)
        forgotten = max(0, len(self._said) - _REMEMBERED)
        self._said, self._closed = self._said[forgotten:], max(0, self._closed - forgotten)
        self._open, self._since = self._open[count:], self._since[count:]
        return taken


def _touch(left: str, right: str) -> bool:
    """Whether two tokens would run into one word: the first of a screen has no space before it."""
    return not right[0].isspace() and not CJK.match(left.strip()) and not CJK.match(right)
