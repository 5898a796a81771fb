"""Text that arrives as UTF-16 code units: surrogate halves are joined across feeds."""

from __future__ import annotations

import re
from typing import Final

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class HalfJoiner:
    """Joins the surrogate pairs of a stream; a half without its mate stays as it is."""

    def __init__(self) -> None:
        self.pending = ""

    def feed(self, text: str) -> str:
        """What of the stream is whole after `text`; a final high half is kept back."""
        if not self.pending and _SURROGATE.search(text) is None:
            return text
        text = self.pending + text
        self.pending = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            self.pending = text[-1]
            text = text[:-1]
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")

    def finish(self) -> str:
        """The half that was kept back, if any."""
        rest, self.pending = self.pending, ""
        return rest
