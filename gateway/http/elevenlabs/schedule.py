"""When text of ElevenLabs' sockets is handed on: their `chunk_length_schedule` and `auto_mode`."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.client import FLUSH, Flush
from gateway.link import GatewayError

_LEAST, _MOST = 50, 500
_ENDS = ".!?…。！？"
_CLOSERS = "\"'”’)]}»」』）】"


class Schedule:
    """Holds text back until enough is there, `lengths` characters for the first generation, the
    second and so on, the last of them for all others.

    Without `lengths` nothing is held back: where to cut is known better further on. `auto`: what
    ends like a sentence is one, and need not wait for the next word.
    Raises `GatewayError` for lengths outside 50 to 500.
    """

    def __init__(self, lengths: Sequence[float] | None, *, auto: bool = False) -> None:
        if lengths and not all(_LEAST <= length <= _MOST for length in lengths):
            raise GatewayError(
                "bad_field",
                f"chunk_length_schedule: lengths lie between {_LEAST} and {_MOST}.",
                field="generation_config.chunk_length_schedule",
            )
        self._lengths = list(lengths or ())
        self._auto = auto
        self._held = ""
        self._released = 0

    def feed(self, text: str, *, flush: bool = False, trigger: bool = False) -> list[str | Flush]:
        """More text; what of it is to be spoken now. `trigger`: at fifty characters already."""
        self._held += text
        enough = not self._lengths or len(self._held) >= self._wanted(trigger)
        out: list[str | Flush] = []
        if self._held and (flush or enough):
            out.append(self._held)
            self._held = ""
            self._released += 1
        if flush or (self._auto and text.rstrip().rstrip(_CLOSERS).endswith(tuple(_ENDS))):
            out.append(FLUSH)
        return out

    def _wanted(self, trigger: bool) -> float:
        length = self._lengths[min(self._released, len(self._lengths) - 1)]
        return min(length, _LEAST) if trigger else length
