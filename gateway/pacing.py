"""Who goes first, who waits, who is let in: pure functions of times and leads.

The lead of a listener is the audio made for them and not yet heard, in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.api import DRY, OFFLINE, SAMPLE_RATE, EngineStats
from gateway.settings import Settings


def priority(lead: float, now: float, *, live: bool) -> int:
    """Engine priority of a piece: silence first, then the earliest moment of running dry.

    `now` is a clock shared by all sessions, so priorities given at different times compare.
    """
    if not live:
        return OFFLINE
    if lead <= 0.0:
        return DRY
    return min(OFFLINE - 1, max(DRY + 1, int((now + lead) * 1000)))


def lead_at_end(lead: float, expected: float, made: float, elapsed: float) -> float:
    """Lead when a piece in the making will be done.

    `expected` and `made`: the piece's audio in seconds, as guessed from its text and so far;
    `elapsed`: since its first audio. With nothing elapsed its pace counts as infinite.
    """
    remaining = max(0.0, expected - made)
    return lead + remaining - remaining * elapsed / made


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a new session is not let in."""

    code: str
    message: str
    retry_after_ms: int


def admit(sessions: int, settings: Settings, stats: EngineStats) -> Refusal | None:
    """Whether one more session may open beside `sessions`."""
    retry = settings.retry_after_ms
    if stats.state == "starting":
        return Refusal("starting", "The speech engine is still starting.", retry)
    if stats.state == "restarting":
        return Refusal("engine_restarting", "The speech engine is being restarted.", retry)
    if stats.state != "ready":
        return Refusal("engine_stopped", "The speech engine has stopped.", retry)
    if sessions >= settings.max_sessions:
        return Refusal("capacity", f"All {settings.max_sessions} sessions are in use.", retry)
    if stats.waiting > settings.max_waiting_pieces:
        return Refusal("capacity", f"{stats.waiting} pieces of text wait for the engine.", retry)
    return None


JITTER_SECONDS = 0.1
"""What a player gathers before it starts, and again after it ran dry."""


class Playhead:
    """A player imagined at the listener's end: where it is, and whether it ran dry.

    Counts samples of all turns of a session one after the other. Reports of the real player correct
    it; between them it runs at the speed of the clock.
    """

    def __init__(self) -> None:
        self.sent = 0
        self._played = 0.0
        self._at = 0.0
        self._paused = False
        self._dry_since: float | None = 0.0

    def played(self, now: float) -> float:
        """Samples heard by `now`."""
        if self._dry_since is None:
            if not self._paused:
                self._played += max(0.0, now - self._at) * SAMPLE_RATE
            if self._played >= self.sent:
                self._dry_since = now - (self._played - self.sent) / SAMPLE_RATE
                self._played = float(self.sent)
        self._at = max(self._at, now)
        return self._played

    def lead(self, now: float) -> float:
        """Seconds sent and not yet heard."""
        return (self.sent - self.played(now)) / SAMPLE_RATE

    def margin(self, now: float) -> float | None:
        """Seconds until the player runs dry if nothing more comes; None where it is dry."""
        lead = self.lead(now)
        return None if self._dry_since is not None else lead + max(0.0, self._at - now)

    def plays(self, now: float) -> bool:
        """Whether something sent is not yet heard; changes nothing."""
        if self._dry_since is not None:
            return False
        since = 0.0 if self._paused else max(0.0, now - self._at)
        return self._played + since * SAMPLE_RATE < self.sent

    def send(self, samples: int, now: float) -> float | None:
        """Take in audio just sent; returns since when the player was dry, if it was."""
        self.played(now)
        dry, self._dry_since = self._dry_since, None
        if dry is not None:
            self._at = now + JITTER_SECONDS
        self.sent += samples
        return dry

    def report(self, played: float, now: float, *, paused: bool) -> None:
        """The real player is at `played` samples."""
        self._paused = paused
        self._at = now
        self._played = min(max(0.0, played), float(self.sent))
        self._dry_since = now if self._played >= self.sent else None

    def skip(self, now: float) -> None:
        """The listener threw away what was not yet heard."""
        self.played(now)
        self._played = float(self.sent)
        self._paused = False
        if self._dry_since is None:
            self._dry_since = now
