"""What a user sees of one turn: pure bookkeeping of text sent and audio received."""

from __future__ import annotations

from dataclasses import dataclass, field

from bench.audible import SAMPLE_RATE, OnsetFinder, PcmOnsetFinder
from bench.player import Player


@dataclass(slots=True)
class Turn:
    """One turn of one user. Times are seconds on one monotonic clock.

    Latencies count from the moment at which the text of the turn's first piece was complete at the
    sender: the piece is known from its caption, and its text from what was sent until when.
    """

    onset: OnsetFinder | PcmOnsetFinder
    player: Player = field(default_factory=Player)
    done: bool = False
    """The server has sent all of it."""
    closed: bool = False
    """The window is over, or the user spoke over it: audio still answers, but plays no more."""
    _sent: list[tuple[int, float]] = field(default_factory=list)
    _characters: int = 0
    _cut_at: float | None = None
    _first_at: float | None = None
    _audible_at: float | None = None
    _interrupted_at: float | None = None
    _cancelled_at: float | None = None

    def send(self, now: float, text: str) -> None:
        """`text` is about to be sent."""
        self._characters += len(text)
        self._sent.append((self._characters, now))

    def caption(self, end: int) -> None:
        """A piece that ends at character `end` is being spoken; the first one starts the clock."""
        if self._cut_at is None:
            self._cut_at = next((at for have, at in self._sent if have >= end), None)

    def audio(self, now: float, samples: int, payload: bytes) -> None:
        """One Opus packet arrived."""
        if not self.closed:
            self.player.push(now, samples)
        if self._audible_at is None:
            if self._first_at is None:
                self._first_at = now
            if self.onset.push(payload, samples):
                self._audible_at = now

    def interrupt(self, now: float) -> None:
        """The user speaks over it: a cancel is about to be sent, and what is in hand is dropped."""
        self._interrupted_at = now
        if not self.closed:
            self.player.stop(now, complete=self.done)
            self.player.runs_dry_at = min(now, self.player.runs_dry_at)
            self.closed = True

    def cancelled(self, now: float) -> None:
        """The server said that the turn is cancelled."""
        self._cancelled_at = now
        self.done = True

    @property
    def interrupted(self) -> bool:
        """Whether the user spoke over it."""
        return self._interrupted_at is not None

    @property
    def was_cancelled(self) -> bool:
        """Whether the server confirmed that it stopped."""
        return self._cancelled_at is not None

    @property
    def cancel(self) -> float | None:
        """Seconds from the user's cancel to the server's word that nothing more comes."""
        if self._interrupted_at is None or self._cancelled_at is None:
            return None
        return self._cancelled_at - self._interrupted_at

    def close(self, now: float) -> None:
        """The window ends at `now`, in the middle of this turn or after it."""
        if not self.closed:
            self.player.stop(now, complete=self.done)
            self.closed = True

    @property
    def answered(self) -> bool:
        """Whether any audio came."""
        return self._first_at is not None

    @property
    def heard(self) -> bool:
        """Whether anything audible came: later payloads need no look."""
        return self._audible_at is not None

    @property
    def first_packet(self) -> float | None:
        """Seconds from the cut text to the first packet."""
        return self._since_cut(self._first_at)

    @property
    def first_audible(self) -> float | None:
        """Seconds from the cut text to the first packet in which something can be heard."""
        return self._since_cut(self._audible_at)

    @property
    def first_sound(self) -> float | None:
        """Seconds from the cut text to the first audible sample of a player without a buffer.

        At the earliest when its packet arrives, and not before the samples ahead of it were played.
        """
        if self._audible_at is None or self._first_at is None or self.onset.onset is None:
            return None
        return self._since_cut(
            max(self._audible_at, self._first_at + self.onset.onset / SAMPLE_RATE)
        )

    def _since_cut(self, at: float | None) -> float | None:
        if at is None:
            return None
        # No caption says what was cut: rather count from too early than from too late.
        cut = self._cut_at if self._cut_at is not None else self._sent[0][1]
        return at - cut
