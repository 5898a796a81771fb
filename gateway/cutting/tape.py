"""Text that grows at its end and is forgotten from its start, at a cost per code point added."""

from __future__ import annotations


class Tape:
    """Positions count from the first text ever added."""

    def __init__(self) -> None:
        self.end = 0
        self._text = ""
        self._base = 0  # position of `_text`
        self._kept_from = 0
        self._more: list[str] = []

    def add(self, text: str) -> None:
        """Put `text` at the end."""
        self._more.append(text)
        self.end += len(text)

    def part(self, low: int, high: int) -> str:
        """The text at `low..high`, of which nothing has been forgotten."""
        if self._more:
            self._text = self._text[self._kept_from - self._base :] + "".join(self._more)
            self._base = self._kept_from
            self._more.clear()
        return self._text[low - self._base : high - self._base]

    def forget(self, until: int) -> None:
        """The text before `until` is not asked for again."""
        self._kept_from = until
