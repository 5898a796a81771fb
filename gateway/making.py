"""What a session has in the engine: which pieces are given to it, what becomes of each attempt."""

from __future__ import annotations

from engine.api import AudioChunk, SpeechError
from gateway.actions import CancelPiece, Command, Observer, StartPiece
from gateway.errors import ERRORS
from gateway.piece import Piece
from gateway.scheduler import Scheduler
from gateway.settings import Settings
from gateway.turn import Turn


class Making:
    """Pieces from their cutting to the last of their audio; commands come out."""

    def __init__(self, settings: Settings, observer: Observer) -> None:
        self._scheduler = Scheduler(settings)
        self._observer = observer
        self._commands: list[Command] = []

    def commands(self) -> list[Command]:
        """Commands since the last call."""
        commands, self._commands = self._commands, []
        return commands

    @property
    def idle(self) -> bool:
        """Whether nothing waits for the engine or is in it."""
        return self._scheduler.idle

    @property
    def wake(self) -> float | None:
        """When `start` should be called again, if time alone can change what it does."""
        return self._scheduler.wake

    def running(self, key: int) -> Piece | None:
        """A piece that is in the engine; None when it is over or was dropped."""
        return self._scheduler.running(key)

    def add(self, pieces: list[Piece]) -> None:
        """New pieces, after all others."""
        self._scheduler.add(pieces)

    def start(self, now: float, lead: float, *, live: bool) -> None:
        """Give the engine the pieces whose time has come."""
        for piece, urgency in self._scheduler.start(now, lead, live=live):
            turn = piece.turn
            self._commands.append(StartPiece(piece.key, turn.request(piece, urgency)))
            self._observer.piece_started(turn.number, piece.index, piece.attempts, piece.text)

    def audio(self, key: int, chunk: AudioChunk, now: float) -> bool:
        """Audio of a piece; the final chunk ends it. False if nobody wants it any more."""
        piece = self._scheduler.running(key)
        if piece is None:
            return False
        verdict = piece.guard.feed(chunk.pcm) if piece.guard is not None else None
        if verdict is None:
            piece.turn.audio(piece, chunk.pcm, now, chunk.words)
        if verdict is not None or (chunk.final and chunk.truncated and not piece.laid):
            self._ran_away(piece, verdict or "limit", chunk, now)
        elif chunk.final:
            # What ran on to its limit is no example for the next piece.
            self._scheduler.done(piece, None if chunk.truncated else chunk.context)
            outcome = "truncated" if chunk.truncated else "done"
            self._observer.piece_over(outcome, piece.turn.number, piece.index)
            self._observer.prompt(chunk.prompt_tokens, chunk.cached_tokens)
        return True

    def failed(self, key: int, error: SpeechError, now: float) -> bool:
        """The engine gave up on a piece. It is tried again if nobody heard any of it, else the rest
        of it is. False if nobody wants it any more."""
        piece = self._scheduler.running(key)
        if piece is None:
            return False
        self._give_up(piece, error, now)
        return True

    def cancel(self, turn: Turn) -> None:
        """Nothing more of a turn is wanted."""
        for piece in self._scheduler.drop(turn):
            self._commands.append(CancelPiece(piece.key))
            self._observer.piece_over("cancelled", turn.number, piece.index)

    def abandon(self) -> None:
        """Nothing more of the session is wanted."""
        for piece in self._scheduler.drop():
            self._commands.append(CancelPiece(piece.key))
            self._observer.piece_over("abandoned", piece.turn.number, piece.index)

    def _give_up(self, piece: Piece, error: SpeechError, now: float) -> bool:
        """An attempt at a piece is over without success; returns whether there will be another."""
        again = self._scheduler.failed(piece, error, now)
        outcome = "retried" if again else "failed"
        self._observer.piece_over(outcome, piece.turn.number, piece.index)
        return again

    def _ran_away(self, piece: Piece, verdict: str, chunk: AudioChunk, now: float) -> None:
        """A piece does not find its end: speak it anew if nobody heard it, else end it here."""
        error = SpeechError("runaway", ERRORS["runaway"].meaning, retryable=True)
        again = self._give_up(piece, error, now)
        self._observer.runaway(verdict, "retried" if again else "ended")
        if not chunk.final:
            self._commands.append(CancelPiece(piece.key))
