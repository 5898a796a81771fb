"""Text on its way into a session: what may come, what has come, when its writer should wait."""

from __future__ import annotations

from collections.abc import Callable

from gateway.flow import WriterFlow
from gateway.protocol import FlowPause, FlowResume, ProtocolError
from gateway.settings import Settings


class Intake:
    """`check` before text is taken, `took` after that."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._flow = WriterFlow(settings.max_backlog_chars, settings.chars_per_second)
        self.characters = 0
        """Taken so far, in all turns."""
        self.charge: Callable[[int, float], None] | None = None
        """Counts text before anything is done for it; raises `ProtocolError` to refuse it."""

    def check(self, text: str, turn: int, waiting: int, now: float) -> None:
        """Whether `text` may come, to a turn of so many characters, while so many wait to be
        spoken. Raises `ProtocolError`.
        """
        size, settings = len(text), self._settings
        if size > settings.max_append_chars:
            raise ProtocolError(
                "text_too_long",
                f"The text has {size} characters; one message takes {settings.max_append_chars}.",
                field="text",
            )
        if turn + size > settings.max_turn_chars:
            raise ProtocolError("turn_too_long")
        if waiting + size > settings.max_backlog_chars:
            raise ProtocolError("backlog_full")
        too_fast = self._flow.too_fast(size, now)
        if too_fast:
            raise ProtocolError("text_rate", retry_after_ms=int(too_fast * 1000) + 1)
        if self.charge is not None:
            self.charge(size, now)

    def took(self, size: int, now: float) -> None:
        """So many characters were taken."""
        self.characters += size
        self._flow.add(size, now)

    @property
    def paused(self) -> bool:
        """Whether the writer was asked to wait."""
        return self._flow.paused

    def flow(self, waiting: int, now: float) -> FlowPause | FlowResume | None:
        """What to tell the writer now that so many characters wait, if anything."""
        return self._flow.check(waiting, now)

    def wake(self, now: float) -> float | None:
        """When to look at `flow` again if nothing else happens."""
        return self._flow.wake(now)
