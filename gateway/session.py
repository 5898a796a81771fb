"""One session of `/v1/stream` without I/O: events go in with the time, messages come out.

    receive, audio, failed, tick, drain  ->  commands()   pieces to start and to cancel
                                         ->  take()       what to send next, in order

Audio is encoded only when it is taken, so a slow socket holds back the engine and nothing piles up
encoded; a cancel then throws away raw samples and no packet of the old turn can follow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import NamedTuple, Protocol

from engine.api import (
    SAMPLE_RATE,
    AudioChunk,
    SpeechError,
    SpeechRequest,
)
from gateway import protocol
from gateway.cutting import CLAUSE_SILENCE_S, WORD_SILENCE_S
from gateway.errors import ERRORS
from gateway.offer import Offer
from gateway.pacing import Playhead
from gateway.protocol import AudioFlag, AudioHeader, Error, ProtocolError, ServerMessage
from gateway.scheduler import Scheduler
from gateway.settings import Settings
from gateway.timeline import Packet
from gateway.turn import Piece, Turn, Voicing

LANGUAGES = ("auto", "en", "zh")
_RECENT_TURNS = 8
_MAX_CONTROL = 256
"""Answers a client may leave unread; one that sends without reading is cut off."""
_HEAD_BUFFER_SAMPLES = SAMPLE_RATE
_FLOW_HIGH, _FLOW_LOW = 0.75, 0.5
_SILENCES = (0.0, CLAUSE_SILENCE_S, WORD_SILENCE_S)
_TICK_SECONDS = 0.001
"""Times are rounded up to this, so that a deadline always lies in the future."""
_RELEASE_LEAD_SECONDS = 0.5
"""A writer's silence matters once the listener has less than this in hand."""


class StartPiece(NamedTuple):
    """Ask the engine for a piece and feed its audio back under `key`."""

    key: int
    request: SpeechRequest


class CancelPiece(NamedTuple):
    """Close the engine's iterator of a piece at once."""

    key: int


Command = StartPiece | CancelPiece


class Close(NamedTuple):
    """Nothing more to send: close the WebSocket."""

    code: int
    reason: str


Outgoing = str | bytes | Close


class Observer(Protocol):
    """What a session tells of itself, for metrics."""

    def turn_started(self) -> None: ...
    def turn_over(self, outcome: str) -> None: ...
    def first_packet(self, seconds: float) -> None: ...
    def first_audible(self, seconds: float) -> None: ...
    def packet(self, payload_bytes: int, lead: float) -> None: ...
    def underrun(self, seconds: float) -> None: ...
    def piece_over(self, outcome: str) -> None: ...
    def prompt(self, tokens: int, cached: int) -> None: ...
    def error(self, code: str) -> None: ...


class Session:
    """The state machine. Every method that takes `now` takes the same monotonic clock, seconds."""

    def __init__(
        self, name: str, settings: Settings, offer: Offer, observer: Observer, now: float
    ) -> None:
        self.name = name
        self._settings = settings
        self._offer = offer
        self._observer = observer
        self._start: protocol.SessionStart | None = None
        self._start_by = now + settings.start_timeout_seconds
        self._voicing = Voicing("default", "auto", 1.0, None)
        self._turns: deque[Turn] = deque()
        self._recent: deque[Turn] = deque(maxlen=_RECENT_TURNS)
        self._turn_count = 0
        self._scheduler = Scheduler(settings)
        self._keys = count()
        self._playhead = Playhead()
        self._commands: list[Command] = []
        self._control: deque[ServerMessage] = deque()
        self._sequence = 0
        self._paused_writer = False
        self._ending: Close | None = None
        self._closing: Close | None = None
        self._deadline: float | None = self._start_by
        self._characters = 0
        self._handlers: dict[type, Callable[..., None]] = {
            protocol.SessionUpdate: self._on_update,
            protocol.TextAppend: self._on_append,
            protocol.TextFlush: self._on_flush,
            protocol.TurnEnd: self._on_turn_end,
            protocol.TurnCancel: self._on_cancel,
            protocol.Playback: self._on_playback,
            protocol.SessionEnd: self._on_end,
            protocol.Ping: self._on_ping,
        }

    # -- events in -------------------------------------------------------------------------------

    def receive(self, raw: str | bytes, now: float) -> None:
        """One message of the client: text as `str`, binary as `bytes`."""
        message: protocol.ClientMessage | None = None
        try:
            if isinstance(raw, bytes):
                raise ProtocolError("binary_not_accepted")
            message = protocol.parse(raw)
            if isinstance(message, protocol.SessionStart):
                self._on_start(message)
            elif isinstance(message, protocol.Ping):
                self._on_ping(message, now)
            elif self._start is None:
                raise ProtocolError("not_started")
            else:
                self._handlers[type(message)](message, now)
        except ProtocolError as refusal:
            kind = message.type if message is not None else None
            self._tell(replace(refusal.error, request=refusal.error.request or kind))
        self._schedule(now)

    def audio(self, key: int, chunk: AudioChunk, now: float) -> None:
        """Audio of a piece; the final chunk ends it."""
        piece = self._scheduler.running(key)
        if piece is None:
            return
        piece.turn.audio(piece, chunk.pcm, now)
        if chunk.final:
            # What ran on to its limit is no example for the next piece.
            self._scheduler.done(piece, None if chunk.truncated else chunk.context)
            self._observer.piece_over("truncated" if chunk.truncated else "done")
            self._observer.prompt(chunk.prompt_tokens, chunk.cached_tokens)
        self._schedule(now)

    def failed(self, key: int, error: SpeechError, now: float) -> None:
        """The engine gave up on a piece. It is tried again if nobody heard any of it."""
        piece = self._scheduler.running(key)
        if piece is None:
            return
        again = self._scheduler.failed(piece, error, now)
        self._observer.piece_over("retried" if again else "failed")
        self._schedule(now)

    def tick(self, now: float) -> None:
        """Time passed; see `deadline`."""
        if self._start is None and now >= self._start_by and self._closing is None:
            self._fail("start_timeout")
        self._schedule(now)

    def drain(self, now: float) -> None:
        """The server is stopping: speak what was sent, take no more."""
        if self._ending is None and self._closing is None:
            self._tell(ProtocolError("draining").error)
            self._finish(Close(1012, "draining"), now)
            self._schedule(now)

    def abandon(self) -> None:
        """The client is gone: cancel everything."""
        self._commands.extend(map(CancelPiece, self._scheduler.drop()))
        for _ in self._turns:
            self._observer.turn_over("abandoned")
        self._turns.clear()
        self._control.clear()
        self._deadline = None

    # -- what comes out --------------------------------------------------------------------------

    def commands(self) -> list[Command]:
        """Commands since the last call."""
        commands, self._commands = self._commands, []
        return commands

    @property
    def deadline(self) -> float | None:
        """When `tick` wants to be called, if at all."""
        return self._deadline

    def accepts(self, key: int) -> bool:
        """Whether more audio of a piece may be fetched from the engine now."""
        piece = self._scheduler.running(key)
        if piece is None:
            return True
        if self._buffered() < self._settings.audio_buffer_seconds * SAMPLE_RATE:
            return True
        head = bool(self._turns) and self._turns[0] is piece.turn and piece.turn.is_next(piece)
        return head and piece.buffered < _HEAD_BUFFER_SAMPLES

    def take(self, now: float) -> Outgoing | None:
        """The next thing to send, or None while there is nothing."""
        if self._control:
            return self._control.popleft().encode()
        if self._closing is not None:
            return self._closing
        while self._turns:
            turn = self._turns[0]
            item = turn.take()
            if self._paused_writer:
                self._flow()
            if item is None:
                return self._control.popleft().encode() if self._control else None
            if isinstance(item, Packet):
                return self._packet(turn, item, now)
            if turn.done:
                self._turns.popleft()
                self._recent.append(turn)
                self._observer.turn_over("done")
            if isinstance(item, Error):
                self._observer.error(item.code)
            self._schedule(now)
            return item.encode()
        if self._ending is not None:
            self._closing = self._ending
            return protocol.SessionEnded(
                turns=self._turn_count, samples=self._playhead.sent, characters=self._characters
            ).encode()
        return None

    def _packet(self, turn: Turn, packet: Packet, now: float) -> bytes:
        flags = AudioFlag.PAUSE if packet.pause else AudioFlag(0)
        first = packet.position == 0
        lead = self._playhead.lead(now)
        dry_since = self._playhead.send(packet.samples, now)
        if first:
            flags |= AudioFlag.FIRST
            turn.base = self._playhead.sent - packet.samples
            if turn.awaited:
                waited = now - turn.pieces[0].cut_at
                self._observer.first_packet(waited)
                self._observer.first_audible(waited + turn.onset / SAMPLE_RATE)
        elif dry_since is not None:
            piece = turn.heard_piece
            if piece is not None and piece.cut_at <= dry_since:
                self._observer.underrun(now - dry_since)
        header = AudioHeader(
            kind=turn.kind,
            flags=flags,
            turn=turn.number,
            sequence=self._sequence,
            samples=packet.samples,
            position=packet.position,
        )
        self._sequence = (self._sequence + 1) % 2**32
        self._observer.packet(len(packet.payload), lead)
        return header.pack() + packet.payload

    # -- client messages -------------------------------------------------------------------------

    def _on_start(self, start: protocol.SessionStart) -> None:
        if self._start is not None:
            raise ProtocolError("already_started")
        voicing = self._offer.voicing(start.voice, start.language, start.speed, start.seed)
        encoder = self._offer.encoder(start)
        self._start, self._voicing = start, voicing
        self._tell(self._offer.started(self.name, start, voicing, encoder, self._settings))

    def _on_update(self, update: protocol.SessionUpdate, now: float) -> None:
        current = self._voicing
        self._voicing = self._offer.voicing(
            current.voice if update.voice is None else update.voice,
            current.language if update.language is None else update.language,
            current.speed if update.speed is None else update.speed,
            current.seed if update.seed is None else update.seed,
        )
        self._tell(
            protocol.SessionUpdated(
                voice=self._voicing.voice,
                language=self._voicing.language,
                speed=self._voicing.speed,
                seed=self._voicing.seed,
            )
        )

    def _on_append(self, message: protocol.TextAppend, now: float) -> None:
        text, settings = message.text, self._settings
        if self._ending is not None:
            raise ProtocolError("session_ending")
        if not text:
            return
        if len(text) > settings.max_append_chars:
            raise ProtocolError(
                "text_too_long",
                f"The text has {len(text)} characters; one message takes "
                f"{settings.max_append_chars}.",
                field="text",
            )
        if self._open_turn_length() + len(text) > settings.max_turn_chars:
            raise ProtocolError("turn_too_long")
        if self._backlog() + len(text) > settings.max_backlog_chars:
            raise ProtocolError("backlog_full")
        turn = self._open_turn()
        if turn is None:
            if len(self._turns) >= settings.max_open_turns:
                raise ProtocolError("too_many_turns")
            turn = self._begin_turn()
        self._characters += len(text)
        self._take_in(turn, turn.append(text, now, self._lead(now)), now)
        self._flow()

    def _on_flush(self, message: protocol.TextFlush, now: float) -> None:
        turn = self._open_turn()
        if turn is None:
            self._tell(protocol.FlushDone(id=message.id))
        elif turn.flushes >= self._settings.max_pending_flushes:
            raise ProtocolError("too_many_flushes")
        else:
            self._take_in(turn, turn.flush(message.id, now), now)

    def _on_turn_end(self, _: protocol.TurnEnd, now: float) -> None:
        turn = self._open_turn()
        if turn is None:
            raise ProtocolError("no_turn", "No turn is open; `text.append` opens one.")
        self._take_in(turn, turn.end(now), now)

    def _on_cancel(self, message: protocol.TurnCancel, now: float) -> None:
        over = [turn for turn in self._recent if not self._heard_out(turn, now)]
        targets = [*over, *self._turns]
        if message.turn is not None:
            known = [*self._recent, *self._turns]
            targets = [turn for turn in known if turn.number == message.turn]
        if not targets:
            raise ProtocolError("no_turn")
        played = _position(message)
        for turn in targets:
            if played is not None and turn is targets[0]:
                heard, estimated = played, False
            else:
                heard, estimated = self._heard(turn, now), turn.sent > 0
            self._cancel(turn, heard, estimated=estimated)
        if not any(turn.sent for turn in self._turns):
            self._playhead.skip(now)

    def _cancel(self, turn: Turn, heard: int, *, estimated: bool) -> None:
        for key in self._scheduler.drop(turn):
            self._commands.append(CancelPiece(key))
            self._observer.piece_over("cancelled")
        if turn in self._turns:
            self._turns.remove(turn)
            self._observer.turn_over("cancelled")
        else:
            self._recent.remove(turn)
        for answer in turn.cancel(heard, estimated=estimated):
            self._tell(answer)
        self._flow()

    def _on_playback(self, message: protocol.Playback, now: float) -> None:
        played = _position(message)
        if played is None:
            raise ProtocolError(
                "bad_field",
                "One of `played_samples` and `played_ms` is needed.",
                field="played_samples",
            )
        for turn in (*self._recent, *self._turns):
            if turn.number == message.turn and turn.sent:
                self._playhead.report(
                    turn.base + min(played, turn.sent), now, paused=message.paused
                )
                return

    def _on_end(self, _: protocol.SessionEnd, now: float) -> None:
        if self._ending is None:
            self._finish(Close(1000, "session ended"), now)

    def _on_ping(self, message: protocol.Ping, now: float) -> None:
        self._tell(protocol.Pong(id=message.id))

    # -- turns -----------------------------------------------------------------------------------

    def _open_turn(self) -> Turn | None:
        """The turn that takes text now: only the last one can be open."""
        return self._turns[-1] if self._turns and not self._turns[-1].ended else None

    def _open_turn_length(self) -> int:
        turn = self._open_turn()
        return turn.characters if turn is not None else 0

    def _begin_turn(self) -> Turn:
        assert self._start is not None
        self._turn_count += 1
        turn = Turn(
            self._turn_count,
            self._voicing,
            text=self._offer.make_text(self._voicing),
            encoder=self._offer.encoder(self._start),
            keys=self._keys.__next__,
            captions=self._start.captions,
        )
        self._turns.append(turn)
        self._observer.turn_started()
        self._tell(protocol.TurnStarted(turn=turn.number, voice=self._voicing.voice))
        return turn

    def _take_in(self, turn: Turn, pieces: list[Piece], now: float) -> None:
        if pieces and pieces[0].index == 0:
            turn.awaited = turn is self._turns[0] and self._lead(now) <= 0.0
        self._scheduler.add(pieces)

    def _finish(self, close: Close, now: float) -> None:
        self._ending = close
        turn = self._open_turn()
        if turn is not None:
            self._take_in(turn, turn.end(now), now)

    def _heard(self, turn: Turn, now: float) -> int:
        """Samples of a turn heard by now, as far as the server can tell."""
        if not turn.sent:
            return 0
        return min(max(0, int(self._playhead.played(now)) - turn.base), turn.sent)

    def _heard_out(self, turn: Turn, now: float) -> bool:
        return self._heard(turn, now) >= turn.sent

    # -- flow ------------------------------------------------------------------------------------

    def _backlog(self) -> int:
        return sum(turn.backlog for turn in self._turns)

    def _buffered(self) -> int:
        return sum(turn.buffered for turn in self._turns)

    def _lead(self, now: float) -> float:
        return self._playhead.lead(now) + self._buffered() / SAMPLE_RATE

    def _flow(self) -> None:
        backlog, most = self._backlog(), self._settings.max_backlog_chars
        if not self._paused_writer and backlog > most * _FLOW_HIGH:
            self._paused_writer = True
            self._tell(protocol.FlowPause(backlog=backlog))
        elif self._paused_writer and backlog <= most * _FLOW_LOW:
            self._paused_writer = False
            self._tell(protocol.FlowResume(backlog=backlog))

    def _tell(self, message: ServerMessage) -> None:
        """An answer that overtakes audio."""
        if self._closing is not None:
            return
        if isinstance(message, Error):
            self._observer.error(message.code)
        self._control.append(message)
        if len(self._control) > _MAX_CONTROL:
            self._fail("slow_reader")

    def _fail(self, code: str) -> None:
        """End the session at once with an error."""
        self._observer.error(code)
        self._control.append(ProtocolError(code).error)
        self._closing = Close(ERRORS[code].close or 1011, code)

    # -- scheduling ------------------------------------------------------------------------------

    def _schedule(self, now: float) -> None:
        """Start the pieces whose time has come; set the time of the next look."""
        lead = self._lead(now)
        wake = [self._release(now, lead)]
        if self._start is None:
            wake.append(self._start_by if self._closing is None else None)
        else:
            for piece, urgency in self._scheduler.start(now, lead, live=self._start.live):
                self._commands.append(StartPiece(piece.key, piece.turn.request(piece, urgency)))
            wake.append(self._scheduler.wake)
        soonest = min((at for at in wake if at is not None), default=None)
        self._deadline = None if soonest is None else max(soonest, now + _TICK_SECONDS)

    def _release(self, now: float, lead: float) -> float | None:
        """Speak unfinished text when its writer pauses and the listener is about to run dry.

        Returns when that will be, if it may come.
        """
        turn = self._open_turn()
        while turn is not None and turn.uncut and turn.release_stage < len(_SILENCES):
            silence = _SILENCES[turn.release_stage]
            if silence and not self._scheduler.idle:
                return None
            due = max(turn.text_at + silence, now + lead - _RELEASE_LEAD_SECONDS)
            if due > now:
                return due
            self._take_in(turn, turn.release(silence, now), now)
        return None


def _position(message: protocol.TurnCancel | protocol.Playback) -> int | None:
    if message.played_samples is not None:
        return message.played_samples
    if message.played_ms is not None:
        return int(message.played_ms * SAMPLE_RATE / 1000)
    return None
