"""Which pieces of a session are in the engine, and when the next one joins them."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence

from engine.api import SAMPLE_RATE, SpeechError
from gateway.characters import expected_seconds
from gateway.pacing import lead_at_end, priority
from gateway.piece import Piece, State
from gateway.settings import Settings
from gateway.turn import Turn

_FIRST_RETRY_SECONDS = 0.1
_LOOK_AGAIN_SECONDS = 0.1
_RUNAWAY_RETRIES = 2
Started = tuple[Piece, int]


def _by_key(piece: Piece) -> int:
    return piece.key


class Scheduler:
    """Pieces in order: waiting, then running, then gone."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._waiting: list[Piece] = []
        self._running: dict[int, Piece] = {}
        self.wake: float | None = None
        """When `start` should be called again, if time alone can change its answer."""

    def add(self, pieces: Sequence[Piece]) -> None:
        """New pieces, after all others."""
        self._waiting.extend(pieces)

    def running(self, key: int) -> Piece | None:
        """A piece that is in the engine; None when it is over or was dropped."""
        return self._running.get(key)

    @property
    def idle(self) -> bool:
        """Whether no piece waits or runs."""
        return not self._waiting and not self._running

    def done(self, piece: Piece, context: object | None) -> None:
        """All audio of a piece is there."""
        del self._running[piece.key]
        piece.state = State.DONE
        piece.context = context
        piece.turn.settled(piece)

    def failed(self, piece: Piece, error: SpeechError, now: float) -> bool:
        """The engine gave up on a piece; returns whether it will be tried again.

        It is, if that may help: all of it if nobody heard any, else what was not said yet.
        """
        del self._running[piece.key]
        if not self._may_retry(piece, error, now) or not piece.turn.again(piece, now):
            # What was said to its last word before it broke off lacks nothing.
            piece.state = State.DONE if piece.whole else State.FAILED
            piece.error = None if piece.whole else error
            piece.turn.settled(piece)
            return False
        piece.not_before = now + _FIRST_RETRY_SECONDS * 2**piece.attempts
        piece.attempts += 1
        piece.use_context = error.code != "context_expired"
        piece.state = State.WAITING
        insort(self._waiting, piece, key=_by_key)
        return True

    def _may_retry(self, piece: Piece, error: SpeechError, now: float) -> bool:
        if error.code == "context_expired":
            return True
        if error.code == "runaway":
            # Another seed may do, at any time, but not if the text is the cause.
            return error.retryable and not piece.laid and piece.attempts < _RUNAWAY_RETRIES
        # What else failed is not waited for without end.
        since = now if piece.laid else piece.cut_at
        waited = now - (since if piece.broke_at is None else piece.broke_at)
        return error.retryable and waited <= self._settings.piece_retry_seconds

    def drop(self, turn: Turn | None = None) -> list[Piece]:
        """Forget the pieces of one turn, or all; returns those in the engine."""
        dropped = [piece for piece in self._running.values() if turn in (None, piece.turn)]
        for piece in dropped:
            del self._running[piece.key]
        self._waiting = [piece for piece in self._waiting if turn not in (None, piece.turn)]
        return dropped

    def start(self, now: float, lead: float, *, live: bool) -> list[Started]:
        """Pieces to give to the engine now, each with its priority."""
        self.wake = None
        started = []
        while self._waiting and self._may_start(self._waiting[0], now, lead, live):
            piece = self._waiting.pop(0)
            piece.state = State.RUNNING
            self._running[piece.key] = piece
            started.append((piece, priority(lead, now, live=live)))
        return started

    def _may_start(self, piece: Piece, now: float, lead: float, live: bool) -> bool:
        settings = self._settings
        if piece.not_before > now:
            self.wake = piece.not_before
            return False
        if len(self._running) >= settings.pieces_ahead:
            return False
        if live and lead > settings.hold_lead_seconds:
            self.wake = now + lead - settings.hold_lead_seconds
            return False
        if self._running:
            last = max(self._running.values(), key=_by_key)
            if last.first_audio_at is None:
                return False
            at_end = lead_at_end(
                lead,
                expected_seconds(last.rest, last.voicing.speed),
                last.made / SAMPLE_RATE,
                now - last.first_audio_at,
            )
            if at_end >= settings.overlap_lead_seconds:
                ahead = lead - settings.overlap_lead_seconds
                self.wake = now + max(_LOOK_AGAIN_SECONDS, ahead)
                return False
        return True
