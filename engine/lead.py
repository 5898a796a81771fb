"""Which requests sit out a step, so that those whose listeners run dry go faster: pure arithmetic.

A language-model step costs more the more requests are in it. A listener with seconds in hand does
not notice that their request rests for a while; a listener who waits for a first sound does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from engine.api import OFFLINE, SAMPLE_RATE, SAMPLES_PER_FRAME

POOR_SECONDS = 0.5
"""A listener with less than this in hand is in a hurry."""
RICH_SECONDS = 1.5
"""With more than this a request can rest: a decode of the largest chunk is still ahead of it."""
OFFLINE_SHARE = 4
"""Requests nobody listens to live take part in every fourth step of a hurry, lest they starve."""

_FRAME_SECONDS = SAMPLES_PER_FRAME / SAMPLE_RATE


class Standing(NamedTuple):
    """One running request: what `SpeechRequest.priority` said of its listener, and its frames."""

    request_id: str
    priority: int
    frames: int


class Leads:
    """Follows the requests of one engine from step to step."""

    def __init__(self) -> None:
        self._first_at: dict[str, float] = {}
        self._step = 0

    def resting(self, standings: Collection[Standing], arriving: bool, now: float) -> set[str]:
        """Ids of the requests that sit out this step.

        arriving: somebody waits to be let in. now: seconds of the system's monotonic clock.
        """
        self._step += 1
        self._forget({standing.request_id for standing in standings})
        leads = {s.request_id: self.lead(s, now) for s in standings if s.priority < OFFLINE}
        if not arriving and not any(lead < POOR_SECONDS for lead in leads.values()):
            return set()
        resting = {name for name, lead in leads.items() if lead > RICH_SECONDS}
        if self._step % OFFLINE_SHARE:
            resting |= {s.request_id for s in standings if s.priority >= OFFLINE}
        return resting

    def lead(self, standing: Standing, now: float) -> float:
        """Seconds of speech this listener has in hand, were every frame with them at once."""
        if not standing.frames:
            return 0.0
        since = self._first_at.setdefault(standing.request_id, now)
        dry_at = max(since, standing.priority / 1000) + standing.frames * _FRAME_SECONDS
        return dry_at - now

    def _forget(self, present: Iterable[str]) -> None:
        for gone in self._first_at.keys() - present:
            del self._first_at[gone]
