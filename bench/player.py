"""A listener's player as a pure model: what arrives when, against what must sound when."""

from __future__ import annotations

from dataclasses import dataclass, field

SAMPLE_RATE = 24_000
JITTER_SECONDS = 0.100


@dataclass(slots=True)
class Player:
    """Real-time playback behind a jitter buffer.

    Playback starts `jitter` seconds after the first arrival. When the next sample is not there in
    time the player runs dry: it falls silent and goes on with the very next arrival, without
    filling its buffer again. Times are seconds on any one monotonic clock.
    """

    jitter: float = JITTER_SECONDS
    started: float | None = None
    """When playback started; None before the first arrival."""
    runs_dry_at: float = 0.0
    """When the samples received so far have all been played."""
    samples: int = 0
    gaps: list[float] = field(default_factory=list)
    """Seconds of silence of every underrun, in order."""

    def push(self, now: float, samples: int) -> None:
        """`samples` more samples arrived at `now`; calls come in order of time."""
        if self.started is None:
            self.started = now + self.jitter
            self.runs_dry_at = self.started
        elif now > self.runs_dry_at:
            self.gaps.append(now - self.runs_dry_at)
            self.runs_dry_at = now
        self.samples += samples
        self.runs_dry_at += samples / SAMPLE_RATE

    def lead(self, now: float) -> float:
        """Seconds of audio in hand at `now`; negative once the player has run dry."""
        return self.runs_dry_at - max(now, self.started or now)

    def stop(self, now: float, *, complete: bool) -> None:
        """No more arrivals are watched. An unfinished stream that is dry at `now` ran dry."""
        if not complete and self.started is not None and now > self.runs_dry_at:
            self.gaps.append(now - self.runs_dry_at)

    @property
    def gapless(self) -> bool:
        """Whether it played at all and never ran dry."""
        return self.started is not None and not self.gaps
