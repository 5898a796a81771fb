"""The turns of a session: which takes text, which wait, which are over but still being heard."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from engine.api import SAMPLE_RATE
from gateway.pacing import Playhead
from gateway.protocol import Playback, ProtocolError, TurnCancel
from gateway.timeline import Packet
from gateway.turn import Turn

_RECENT_TURNS = 8


class Cut(NamedTuple):
    """Where a turn is cut off: the listener has heard `heard` samples of it."""

    turn: Turn
    heard: int
    estimated: bool


class Turns:
    """Turns in order, on one imagined player."""

    def __init__(self) -> None:
        self.queue: deque[Turn] = deque()
        """Turns not yet sent to their end; the first is the one being sent."""
        self._recent: deque[Turn] = deque(maxlen=_RECENT_TURNS)
        self.playhead = Playhead()
        self.begun = 0

    @property
    def open(self) -> Turn | None:
        """The turn that takes text now: only the last one can be open."""
        return self.queue[-1] if self.queue and not self.queue[-1].ended else None

    @property
    def backlog(self) -> int:
        """Characters not yet spoken."""
        return sum(turn.backlog for turn in self.queue)

    @property
    def buffered(self) -> int:
        """Samples made and not yet sent."""
        return sum(turn.buffered for turn in self.queue)

    def lead(self, now: float) -> float:
        """Seconds made and not yet heard."""
        return self.playhead.lead(now) + self.buffered / SAMPLE_RATE

    def add(self, turn: Turn) -> None:
        """A new turn, behind all others."""
        self.begun += 1
        self.queue.append(turn)

    def sent_all(self) -> None:
        """The first turn was sent to its end."""
        self._recent.append(self.queue.popleft())

    def sent(self, turn: Turn, packet: Packet, now: float) -> float | None:
        """A packet goes out; returns since when the listener had nothing, if so."""
        dry_since = self.playhead.send(packet.samples, now)
        if packet.position == 0:
            turn.base = self.playhead.sent - packet.samples
        return dry_since

    def remove(self, turn: Turn) -> bool:
        """A turn was cancelled; False if all of it had been sent."""
        if turn in self.queue:
            self.queue.remove(turn)
            return True
        self._recent.remove(turn)
        return False

    # -- what was heard --------------------------------------------------------------------------

    def all_cuts(self, now: float) -> list[Cut]:
        """A cut for every turn not sent to its end."""
        return [Cut(turn, self._heard(turn, now), turn.sent > 0) for turn in self.queue]

    def cuts(self, message: TurnCancel, now: float) -> list[Cut]:
        """What a cancel cuts off, and where: the turn named, or all not heard to their end."""
        over = [turn for turn in self._recent if self._heard(turn, now) < turn.sent]
        targets = [*over, *self.queue]
        if message.turn is not None:
            known = [*self._recent, *self.queue]
            targets = [turn for turn in known if turn.number == message.turn]
        cuts = [Cut(turn, self._heard(turn, now), turn.sent > 0) for turn in targets]
        played = _position(message)
        if cuts and played is not None:
            cuts[0] = Cut(targets[0], played, False)
        return cuts

    def settle(self, now: float) -> None:
        """After a cancel: the listener has thrown away what was not heard."""
        if not any(turn.sent for turn in self.queue):
            self.playhead.skip(now)

    def report(self, message: Playback, now: float) -> None:
        """Where the listener is. Raises `ProtocolError` when the message does not say."""
        played = _position(message)
        if played is None:
            raise ProtocolError(
                "bad_field",
                "One of `played_samples` and `played_ms` is needed.",
                field="played_samples",
            )
        for turn in (*self._recent, *self.queue):
            if turn.number == message.turn and turn.sent:
                at = turn.base + min(played, turn.sent)
                self.playhead.report(at, now, paused=message.paused)
                return

    def _heard(self, turn: Turn, now: float) -> int:
        """Samples of a turn heard by now, as far as the server can tell."""
        if not turn.sent:
            return 0
        return min(max(0, int(self.playhead.played(now)) - turn.base), turn.sent)


def _position(message: TurnCancel | Playback) -> int | None:
    if message.played_samples is not None:
        return message.played_samples
    if message.played_ms is not None:
        return int(message.played_ms * SAMPLE_RATE / 1000)
    return None
