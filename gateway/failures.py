"""How much of what the engine was asked for lately failed by a fault of ours: what takes a gateway
out of those that get new sessions, and lets it back."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

_SECONDS = 30.0
"""What is forgotten: a gateway that gets no sessions tries again after so long."""
_LEAST = 8
"""Pieces from which a share says something."""
_OF_THE_TEXT = {
    *("unknown_voice", "empty_text", "text_too_long", "unpronounceable"),
    *("unsupported_language", "bad_speed", "context_expired"),
}
_TOLD_OTHERWISE = {"engine_restarting", "engine_stopped", "engine_full"}
"""The state of the engine says it, which ends sooner; or load, which admission measures."""
BLAMELESS = frozenset(_OF_THE_TEXT | _TOLD_OTHERWISE)
"""Error codes that say nothing against this gateway."""


class Failures:
    """Pieces of the last 30 seconds, and how many of them failed. `share` is how many may."""

    def __init__(self, share: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._share = share
        self._clock = clock
        self._pieces: deque[tuple[float, bool]] = deque()
        self._failed = 0

    def note(self, *, failed: bool) -> None:
        self._pieces.append((self._clock(), failed))
        self._failed += failed
        self._forget()

    def too_many(self) -> str | None:
        """What to say when there are, else None."""
        self._forget()
        if not self._share or len(self._pieces) < _LEAST:
            return None
        if self._failed <= self._share * len(self._pieces):
            return None
        return f"{self._failed} of the last {len(self._pieces)} pieces failed."

    def _forget(self) -> None:
        since = self._clock() - _SECONDS
        while self._pieces and self._pieces[0][0] < since:
            self._failed -= self._pieces.popleft()[1]
