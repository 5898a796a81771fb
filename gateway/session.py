"""One session of `/v1/stream` without I/O: events go in with the time, messages come out.

    receive, audio, failed, tick, drain  ->  commands()   pieces to start and to cancel
                                         ->  take()       what to send next, in order

Audio is encoded only when it is taken, so a slow socket holds back the engine and nothing piles up
encoded; a cancel then throws away raw samples and no packet of the old turn can follow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

from engine.api import SAMPLE_RATE, AudioChunk, SpeechError
from gateway import protocol
from gateway.actions import Close, Command, Observer, Outgoing, Resume
from gateway.answers import Answers
from gateway.cutting import CLAUSE_SILENCE_S, WORD_SILENCE_S
from gateway.intake import Intake
from gateway.loudness import Leveller
from gateway.making import Making
from gateway.offer import Offer
from gateway.outlet import Outlet
from gateway.piece import Piece
from gateway.protocol import Error, ProtocolError
from gateway.resend import Resend
from gateway.settings import Settings
from gateway.telling import unclosed
from gateway.timeline import Packet
from gateway.transcript import Transcript
from gateway.turn import Turn
from gateway.turns import Cut, Turns
from gateway.wishes import Wishes

_HEAD_BUFFER_SAMPLES = SAMPLE_RATE
_SILENCES = (0.0, CLAUSE_SILENCE_S, WORD_SILENCE_S)
_TICK_SECONDS = 0.001
"""Times are rounded up to this, so that a deadline always lies in the future."""
_READ_CHARS = 1000
"""Text read at once: at most some ten milliseconds, where it is all markup."""
_DRAINED = Close(1012, "draining")
_RELEASE_LEAD_SECONDS = 0.5
"""A writer's silence matters once the listener has less than this in hand."""


class Session:
    """The state machine. Every method that takes `now` takes the same monotonic clock, seconds."""

    def __init__(
        self,
        name: str,
        settings: Settings,
        offer: Offer,
        observer: Observer,
        now: float,
        *,
        token: str,
        refusal: Error | None = None,
    ) -> None:
        """`token` resumes the session, if its client asks for that. `refusal`: no new session is
        let in now, but one that lives already may be resumed.
        """
        self.name = name
        self.token = token
        self._refusal = refusal
        self._settings = settings
        self._wishes = Wishes(offer)
        self._observer = observer
        self._start: protocol.SessionStart | None = None
        self._start_by = now + settings.start_timeout_seconds
        self._turns = Turns()
        self._making = Making(settings, observer)
        self._keys = count()
        self._leveller = Leveller()
        self._resume: list[Command] = []
        self._answers = Answers(observer)
        self._outlet = Outlet(self._turns, observer, now)
        self.intake = Intake(settings)
        self._resend = Resend(0)
        self.transcript = Transcript()
        self._resumed: protocol.SessionResumed | None = None
        self._received = 0
        self._unread: tuple[Turn, str] | None = None
        self._ending: Close | None = None
        self._draining = False
        self._deadline: float | None = self._start_by

    # -- events in -------------------------------------------------------------------------------

    def receive(self, raw: str | bytes, now: float) -> None:
        """One message of the client: text as `str`, binary as `bytes`."""
        self._received += 1
        self._read_all(now)
        message: protocol.ClientMessage | None = None
        try:
            if isinstance(raw, bytes):
                raise ProtocolError("binary_not_accepted")
            message = protocol.parse(raw)
            if isinstance(message, protocol.SessionResume):
                self._on_resume(message)
            elif isinstance(message, protocol.SessionStart):
                self._on_start(message)
            elif isinstance(message, protocol.Ping):
                self._on_ping(message, now)
            elif self._start is None:
                raise ProtocolError("not_started")
            else:
                _HANDLERS[type(message)](self, message, now)
        except ProtocolError as refusal:
            self.refuse(refusal, message.type if message is not None else None)
        if self._draining and self._ending is None and self._turns.open is None:
            self._finish(_DRAINED, now)
        self._schedule(now)

    def admit(self, refusal: Error | None) -> None:
        """It turned out who the client is: let the session start, or refuse it anew."""
        self._refusal = refusal

    def refuse(self, refusal: ProtocolError, request: str | None) -> None:
        """Tell the client that its message was not taken."""
        self._answers.tell(replace(refusal.error, request=refusal.error.request or request))

    def resume(self, received: int, now: float) -> None:
        """Go on over another connection, whose client has the first `received` messages.

        Raises `ProtocolError`; the session stays as it was then.
        """
        self._read_all(now)
        missing = self._resend.rewind(received)
        turn = self._turns.open
        self._resumed = protocol.SessionResumed(
            session=self.name,
            received=self._received,
            characters=self.intake.characters,
            turn=turn.number if turn else None,
            turn_characters=turn.characters if turn else None,
            replayed=missing,
        )
        self._outlet.connected_at = now

    def audio(self, key: int, chunk: AudioChunk, now: float) -> None:
        """Audio of a piece; the final chunk ends it."""
        if self._making.audio(key, chunk, now):
            self._schedule(now)

    def failed(self, key: int, error: SpeechError, now: float) -> None:
        """The engine gave up on a piece. It is tried again if nobody heard any of it."""
        if self._making.failed(key, error, now):
            self._schedule(now)

    def tick(self, now: float) -> None:
        """Time passed; see `deadline`."""
        if self._start is None and now >= self._start_by and self._answers.closing is None:
            self._answers.end(ProtocolError("start_timeout").error)
        if self.intake.paused:
            self._check_flow(now)
        self._read(now)
        self._schedule(now)

    def drain(self, now: float, notice: protocol.ServerDraining) -> None:
        """The server is stopping: speak what was sent, let the open turn be finished, begin no
        other."""
        if self._draining or self._ending is not None or self._answers.closing is not None:
            return
        self._draining = True
        if self._start is None:
            self._answers.end(ProtocolError("draining").error)
            return
        self._answers.tell(notice)
        if self._turns.open is None:
            self._finish(_DRAINED, now)
        self._schedule(now)

    def hurry(self, now: float) -> None:
        """The time for draining is up: tell what was not heard, to be sent elsewhere."""
        self._read_all(now)
        self._cancel([cut for cut in self._turns.all_cuts(now) if cut.turn.backlog], now)
        if self._ending is None:
            self._finish(_DRAINED, now)
        self._schedule(now)

    def abandon(self) -> None:
        """The client is gone: cancel everything."""
        self._making.abandon()
        for turn in self._turns.queue:
            self._observer.turn_over("abandoned", turn.number)
        self._turns.queue.clear()
        self._unread = None
        self._answers.clear()
        self._deadline = None

    # -- what comes out --------------------------------------------------------------------------

    def commands(self) -> list[Command]:
        """Commands since the last call."""
        resume, self._resume = self._resume, []
        return [*self._making.commands(), *resume]

    @property
    def resumable(self) -> bool:
        """Whether the session outlives its connection."""
        return self._start is not None and self._start.resume and self._settings.resume_seconds > 0

    def speaking(self, now: float) -> bool | None:
        """Whether somebody listens live to what is or will be made of its text; None: never."""
        if self._start is None:
            return False
        if not self._start.live:
            return None
        return self._turns.backlog > 0 or self._turns.playhead.plays(now)

    @property
    def deadline(self) -> float | None:
        """When `tick` wants to be called, if at all."""
        return self._deadline

    def accepts(self, key: int) -> bool:
        """Whether more audio of a piece may be fetched from the engine now."""
        piece = self._making.running(key)
        if piece is None:
            return True
        if self._turns.buffered < self._settings.audio_buffer_seconds * SAMPLE_RATE:
            return True
        queue = self._turns.queue
        head = bool(queue) and queue[0] is piece.turn and piece.turn.is_next(piece)
        return head and piece.buffered < _HEAD_BUFFER_SAMPLES

    def take(self, now: float) -> Outgoing | None:
        """The next thing to send, or None while there is nothing."""
        if self._resumed is not None:
            answer, self._resumed = self._resumed.encode(), None
            return answer
        again = self._resend.next()
        if again is not None:
            return again
        item = self._take_new(now)
        if isinstance(item, str | bytes):
            self._resend.record(item)
        return item

    def _take_new(self, now: float) -> Outgoing | None:
        answer = self._answers.next()
        if answer is not None:
            return answer
        if self._answers.closing is not None:
            return self._answers.closing
        while self._turns.queue:
            turn = self._turns.queue[0]
            item = turn.take()
            if self.intake.paused:
                self._check_flow(now)
            if item is None:
                return self._answers.next()
            if isinstance(item, Packet):
                return self._outlet.packet(turn, item, now)
            if turn.done:
                self._turns.sent_all()
                self._observer.turn_over("done", turn.number)
            if isinstance(item, Error):
                self._observer.error(item.code)
            self.transcript.note(item)
            self._schedule(now)
            return item.encode()
        if self._ending is not None:
            self._answers.closing = self._ending
            return protocol.SessionEnded(
                turns=self._turns.begun,
                samples=self._turns.playhead.sent,
                characters=self.intake.characters,
            ).encode()
        return None

    # -- client messages -------------------------------------------------------------------------

    def _on_start(self, start: protocol.SessionStart) -> None:
        if self._start is not None:
            raise ProtocolError("already_started")
        if self._refusal is not None:
            self._answers.end(self._refusal)
            return
        answer, notices = self._wishes.begin(start, self.name, self._settings)
        self._start = start
        self._outlet.live = start.live
        if self.resumable:
            self._resend.keep(self._settings.replay_bytes)
        self._answers.tell(replace(answer, token=self.token if self.resumable else None))
        self._warn(notices)

    def _warn(self, notices: list[protocol.Notice]) -> None:
        for notice in notices:
            self._answers.tell(notice)

    def _on_resume(self, message: protocol.SessionResume) -> None:
        if self._start is not None:
            raise ProtocolError("already_started")
        self._resume.append(Resume(message.token, message.received))

    def _on_update(self, update: protocol.SessionUpdate, now: float) -> None:
        self._warn(self._wishes.change(update))
        turn = self._turns.open if update.scope == "piece" else None
        if turn is not None:
            self._take_in(turn, turn.revoice(self._wishes.voicing, now), now)
        self._answers.tell(self._wishes.updated(turn.number if turn else None))

    def _on_append(self, message: protocol.TextAppend, now: float) -> None:
        text = message.text
        if self._ending is not None:
            raise ProtocolError("session_ending")
        if not text:
            return
        turn = self._turns.open
        assert self._start is not None
        interrupts = turn is None and self._start.interrupt
        waiting = 0 if interrupts else self._turns.backlog
        self.intake.check(text, turn.characters if turn else 0, waiting, now)
        if turn is None:
            turn = self._open_turn(protocol.TurnCancel() if interrupts else None, now)
        self.intake.took(len(text), now)
        self._unread = turn, text
        self._read(now)

    @property
    def unread(self) -> bool:
        """Whether text that was taken waits to be read, by `tick` or before the next message."""
        return self._unread is not None

    def _read(self, now: float) -> None:
        """Read a part of the text taken last: all of a long one would keep others waiting."""
        if self._unread is None:
            return
        turn, text = self._unread
        self._unread = (turn, text[_READ_CHARS:]) if len(text) > _READ_CHARS else None
        self._take_in(turn, turn.append(text[:_READ_CHARS], now, self._turns.lead(now)), now)
        self._check_flow(now)

    def _read_all(self, now: float) -> None:
        while self._unread is not None:
            self._read(now)

    def _on_flush(self, message: protocol.TextFlush, now: float) -> None:
        turn = self._turns.open
        if turn is None:
            self._answers.tell(protocol.FlushDone(id=message.id))
        elif turn.flushes >= self._settings.max_pending_flushes:
            raise ProtocolError("too_many_flushes")
        else:
            self._take_in(turn, turn.flush(message.id, now), now)

    def _on_turn_start(self, message: protocol.TurnStart, now: float) -> None:
        if self._ending is not None or self._draining:
            raise ProtocolError("session_ending")
        assert self._start is not None
        interruption = None
        if message.interrupt or self._start.interrupt:
            interruption = protocol.TurnCancel(
                played_samples=message.played_samples, played_ms=message.played_ms
            )
        turn = self._open_turn(interruption, now)
        self._warn(self._wishes.restyle(turn, message))

    def _on_turn_end(self, _: protocol.TurnEnd, now: float) -> None:
        turn = self._turns.open
        if turn is None:
            raise ProtocolError("no_turn", "No turn is open; `text.append` opens one.")
        self._end_turn(turn, now)

    def _on_cancel(self, message: protocol.TurnCancel, now: float) -> None:
        cuts = self._turns.cuts(message, now)
        if not cuts:
            raise ProtocolError("no_turn")
        self._cancel(cuts, now)

    def _cancel(self, cuts: list[Cut], now: float) -> None:
        for turn, heard, estimated in cuts:
            self._making.cancel(turn)
            if self._turns.remove(turn):
                self._observer.turn_over("cancelled", turn.number)
            for answer in turn.cancel(heard, estimated=estimated):
                self.transcript.note(answer)
                self._answers.tell(answer)
        self._turns.settle(now)
        self._check_flow(now)

    def _on_playback(self, message: protocol.Playback, now: float) -> None:
        self._turns.report(message, now)

    def _on_end(self, _: protocol.SessionEnd, now: float) -> None:
        if self._ending is None:
            self._finish(Close(1000, "session ended"), now)

    def _on_ping(self, message: protocol.Ping, now: float) -> None:
        self._answers.tell(protocol.Pong(id=message.id))

    # -- turns -----------------------------------------------------------------------------------

    def _open_turn(self, interruption: protocol.TurnCancel | None, now: float) -> Turn:
        """A new turn, behind those that wait or in their place."""
        if interruption is not None:
            self._cancel(self._turns.cuts(interruption, now), now)
            return self._begin_turn()
        if len(self._turns.queue) >= self._settings.max_open_turns:
            raise ProtocolError("too_many_turns")
        before = self._turns.open
        if before is not None:
            self._end_turn(before, now)
        return self._begin_turn()

    def _begin_turn(self) -> Turn:
        number = self._turns.begun + 1
        turn = self._wishes.turn(number, self._keys.__next__, self._leveller)
        self._turns.add(turn)
        self._observer.turn_started(turn.number)
        self._answers.tell(protocol.TurnStarted(turn=number, voice=turn.voicing.voice))
        return turn

    def _end_turn(self, turn: Turn, now: float) -> None:
        self._take_in(turn, turn.end(now), now)
        if (opening := turn.unclosed) is not None:
            self._answers.tell(unclosed(turn.number, opening))

    def _take_in(self, turn: Turn, pieces: list[Piece], now: float) -> None:
        if pieces and pieces[0].index == 0:
            turn.awaited = turn is self._turns.queue[0] and self._turns.lead(now) <= 0.0
        self._making.add(pieces)

    def _finish(self, close: Close, now: float) -> None:
        self._read_all(now)
        self._ending = close
        turn = self._turns.open
        if turn is not None:
            self._end_turn(turn, now)

    # -- answers ---------------------------------------------------------------------------------

    def _check_flow(self, now: float) -> None:
        request = self.intake.flow(self._turns.backlog, now)
        if request is not None:
            self._answers.tell(request)

    # -- scheduling ------------------------------------------------------------------------------

    def _schedule(self, now: float) -> None:
        """Start the pieces whose time has come; set the time of the next look."""
        lead = self._turns.lead(now)
        wake = [self._release(now, lead) if self._unread is None else now]
        if self._start is None:
            wake.append(self._start_by if self._answers.closing is None else None)
        else:
            self._making.start(now, lead, live=self._start.live)
            wake += (self._making.wake, self.intake.wake(now))
        soonest = min((at for at in wake if at is not None), default=None)
        self._deadline = None if soonest is None else max(soonest, now + _TICK_SECONDS)

    def _release(self, now: float, lead: float) -> float | None:
        """Speak unfinished text when its writer pauses and the listener is about to run dry.

        Returns when that will be, if it may come.
        """
        turn = self._turns.open
        while turn is not None and turn.uncut and turn.release_stage < len(_SILENCES):
            silence = _SILENCES[turn.release_stage]
            if silence and not self._making.idle:
                return None
            due = max(turn.text_at + silence, now + lead - _RELEASE_LEAD_SECONDS)
            if due > now:
                return due
            self._take_in(turn, turn.release(silence, now), now)
        return None


_HANDLERS: dict[type, Callable[[Session, Any, float], None]] = {
    protocol.SessionUpdate: Session._on_update,
    protocol.TextAppend: Session._on_append,
    protocol.TextFlush: Session._on_flush,
    protocol.TurnStart: Session._on_turn_start,
    protocol.TurnEnd: Session._on_turn_end,
    protocol.TurnCancel: Session._on_cancel,
    protocol.Playback: Session._on_playback,
    protocol.SessionEnd: Session._on_end,
}
