"""Written text in any fragments in, spoken text out."""

from __future__ import annotations

from typing import Final

import regex

from gateway.spoken import patterns as p
from gateway.spoken.inline import read_sign
from gateway.spoken.lines import code_line, line_opening
from gateway.spoken.mapped import Run, Spoken
from gateway.spoken.render import rendered
from gateway.spoken.scanner import NeedMore, Opening, Scanner, Segment
from gateway.spoken.settings import SpokenSettings

_LONGEST_END: Final = 16
"""Code points that the end of an unspoken element may take."""
_UNDECIDED: Final = regex.compile(rf"(?:[!*_~]+|[{p.EMOJI_CLASS}\ufe0f\u200d]+)")


class SpokenFilter:
    """Takes the markup out of one turn's text, as it arrives.

    What comes out depends on the text alone, never on how it was fragmented, and comes as soon as
    what follows cannot change it. The segments together cover the written text.
    """

    def __init__(self, settings: SpokenSettings | None = None) -> None:
        self._scan = Scanner(settings or SpokenSettings())

    def feed(self, text: str) -> list[Segment]:
        """Take more text, of whole code points; give what is decided by now."""
        scan = self._scan
        at = scan.base + scan.size
        if self.passes(text):
            return [Segment(text, at, at + len(text), True, False)]
        scan.take(text)
        return scan.forget(self._read())

    def passes(self, text: str) -> bool:
        """Whether `text` is all plain, and is then read: it is spoken as it is, here and now."""
        scan = self._scan
        if (
            scan.read < scan.size
            or scan.line_start
            or scan.fence
            or scan.until is not None
            or p.SPECIAL.search(text) is not None
            or p.LINK_STUB.search(text) is not None
            or not text
        ):
            return False
        scan.pass_on(text)
        return True

    @property
    def unclosed(self) -> Opening | None:
        """What opened the element that the text is in, of which nothing is spoken."""
        return None if self._scan.until is None else self._scan.opening

    def flush(self) -> list[Segment]:
        """Give everything, taking what is open as plain text; the turn may go on."""
        scan = self._scan
        if scan.size > scan.read:
            scan.close()
            self._read()
            scan.reopen()
        return scan.forget(scan.size)

    def settle(self) -> list[Segment]:
        """Give marks and emoji at the end that wait only for the next code point.

        Not marks that a word would make the beginning of emphasis: they hold nothing back, and by
        themselves say nothing.
        """
        scan = self._scan
        held, before = scan.text[scan.read :], scan.text[: scan.read][-1:]
        opens = held[:1] in ("*", "_", "~") and (not before or before.isspace())
        return self.flush() if _UNDECIDED.fullmatch(held) and not opens else []

    def _read(self) -> int:
        """Read on until the text ends or more of it is needed; returns how far it was read."""
        scan = self._scan
        index = scan.read
        try:
            while index < len(scan.text):
                if scan.until is not None:
                    index = self._pass_over(scan.until, index)
                elif scan.fence:
                    index = code_line(scan, index)
                elif scan.line_start:
                    index = line_opening(scan, index)
                else:
                    index = self._plain(index)
        except NeedMore:
            pass
        return index

    def _plain(self, index: int) -> int:
        """Keep text up to the next sign, or read that."""
        scan = self._scan
        found = p.SPECIAL.search(scan.text, index)
        end = found.start() if found else len(scan.text)
        if found is None and (stub := p.LINK_STUB.search(scan.text, index)):
            end = stub.start()
        if end > index:
            return scan.keep(index, end)
        if found is None:
            raise NeedMore
        return read_sign(scan, index)

    def _pass_over(self, until: regex.Pattern[str], index: int) -> int:
        scan = self._scan
        found = until.search(scan.text, index)
        if found is not None:
            scan.until = None
            # A model that thought goes on as if the line began here.
            scan.line_start = scan.bare
            return scan.drop(index, found.end())
        end = len(scan.text) - (0 if scan.final else _LONGEST_END)
        if end <= index:
            raise NeedMore
        return scan.drop(index, end)


def speak(written: str, settings: SpokenSettings | None = None) -> Spoken:
    """The spoken text of a whole written one, with spans back to it."""
    settings = settings or SpokenSettings()
    spoken = SpokenFilter(settings)
    segments = [*spoken.feed(written), *spoken.flush()]
    runs = [Run(s.text, s.start, s.end, s.exact) for s in segments if s.text]
    return rendered(runs, settings)
