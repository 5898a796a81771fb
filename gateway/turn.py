"""One turn: its text in pieces, the pieces' audio in order, what goes out about it.

Pure: it knows neither sockets nor clocks beyond the times it is given.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from engine.api import SAMPLE_RATE, Pcm, SpeechRequest, WordTime
from gateway.characters import CJK
from gateway.cutting import TurnPiece, TurnText
from gateway.encoding import Encoder
from gateway.loudness import Leveller
from gateway.pauses import PAUSES, SHORTEST, Pauses, milliseconds
from gateway.piece import Piece, State, Voicing
from gateway.protocol import FlushDone, ServerMessage, TurnCancelled, TurnDone
from gateway.runaway import GuardMaker, RunawayGuard
from gateway.spoken import Opening
from gateway.telling import caption, failure, heard_characters
from gateway.timeline import Packet, Timeline

STEP_SAMPLES = SAMPLE_RATE // 10
"""Most audio encoded at once: some five packets, about a millisecond."""
_SEED_STEP = 1_000_003


class Turn:
    """Text goes in at one end; `take` gives messages and packets in order at the other."""

    def __init__(
        self,
        number: int,
        voicing: Voicing,
        *,
        text: TurnText,
        encoder: Encoder,
        keys: Callable[[], int],
        captions: bool,
        early_words: bool = False,
        pauses: Pauses = PAUSES,
        leveller: Leveller | None = None,
        make_guard: GuardMaker = RunawayGuard,
    ) -> None:
        self.number = number
        self.voicing = voicing
        self.pieces: list[Piece] = []
        self.ended = False
        self.done = False
        """Whether `turn.done` was taken, or the turn was cancelled."""
        self.characters = 0
        self.text_at = 0.0
        self.release_stage = 0
        """How many of the silences after which text may be released have passed since `text_at`."""
        self.awaited = False
        """Whether the listener sat in silence when the first piece was cut."""
        self.buffered = 0
        self.sent = 0
        """Samples sent, pre-skip included."""
        self.base = 0
        """Where on the session's playhead the turn begins, once something was sent."""
        self.packets = 0
        self._text = text
        self._timeline = Timeline(encoder, leveller)
        self.kind = encoder.kind
        self._pre_skip = encoder.pre_skip
        self._keys = keys
        self._captions = captions
        self._early_words = early_words
        self._pauses = pauses
        self._make_guard = make_guard
        self._written: list[str] = []
        self._flushes: deque[tuple[int, str | None]] = deque()
        self._ready: deque[ServerMessage | Packet] = deque()
        self._cursor = 0
        self._finished = False

    # -- text ------------------------------------------------------------------------------------

    def append(self, text: str, now: float, lead: float) -> list[Piece]:
        """New pieces the text completes."""
        self.text_at, self.release_stage = now, 0
        self.characters += len(text)
        self._written.append(text)
        self._text.lead = lead
        return self._add(self._text.feed(text), now)

    def release(self, silence: float, now: float) -> list[Piece]:
        """What may be spoken after the writer was silent for so many seconds."""
        self.release_stage += 1
        return self._add(self._text.release(silence), now)

    def revoice(self, voicing: Voicing, now: float) -> list[Piece]:
        """Cut all text so far; what follows is spoken in another way."""
        pieces = self._add(self._text.flush(), now)
        self.voicing = voicing
        return pieces

    def flush(self, flush_id: str | None, now: float) -> list[Piece]:
        """Cut all text so far and answer once its audio is out."""
        pieces = self._add(self._text.flush(), now)
        self._flushes.append((len(self.pieces), flush_id))
        return pieces

    def end(self, now: float) -> list[Piece]:
        """No more text."""
        pieces = self._add(self._text.finish(), now)
        self.ended = True
        return pieces

    @property
    def unclosed(self) -> Opening | None:
        """What opened the element that the text is in, of which nothing is spoken."""
        return self._text.unclosed

    @property
    def uncut(self) -> int:
        """Characters not yet part of any piece."""
        return self.characters - (self.pieces[-1].end if self.pieces else 0)

    @property
    def backlog(self) -> int:
        """Characters not yet spoken to their end."""
        return self.characters - (self.pieces[self._cursor - 1].end if self._cursor else 0)

    @property
    def flushes(self) -> int:
        """Flushes not yet answered."""
        return len(self._flushes)

    def _add(self, cut: Sequence[TurnPiece], now: float) -> list[Piece]:
        first = len(self.pieces)
        mine = weakref.ref(self)
        new = [
            Piece(
                key=self._keys(),
                of=mine,
                index=index,
                text=text.text,
                start=text.start,
                end=text.end,
                said=text.said,
                voicing=self.voicing,
                pause=text.pause,
                cut_at=now,
            )
            for index, text in enumerate(cut, first)
        ]
        self.pieces += new
        return new

    # -- audio -----------------------------------------------------------------------------------

    def request(self, piece: Piece, priority: int) -> SpeechRequest:
        """What to ask of the engine, going on from the piece before if that is known."""
        voicing = piece.voicing
        piece.guard = self._make_guard(piece.rest, voicing.speed)
        context = None
        if piece.use_context and piece.index:
            before = self.pieces[piece.index - 1]
            context = before.context if before.voicing.voice == voicing.voice else None
        seed = voicing.seed
        if seed is not None:
            seed = (seed + _SEED_STEP * piece.attempts) % 2**32
        return SpeechRequest(
            text=piece.rest,
            voice=voicing.voice,
            language=voicing.language,
            speed=voicing.speed,
            style=voicing.style,
            seed=seed,
            priority=priority,
            context=context,
        )

    def audio(self, piece: Piece, pcm: Pcm, now: float, words: Sequence[WordTime] = ()) -> None:
        """Audio of a piece, to be laid down when its time comes, and when its words are said."""
        piece.told += words
        if not pcm.size:
            return
        if piece.first_audio_at is None:
            piece.first_audio_at = now
        for at in range(0, pcm.size, STEP_SAMPLES):
            piece.chunks.append(pcm[at : at + STEP_SAMPLES])
        piece.made += pcm.size
        piece.buffered += pcm.size
        self.buffered += pcm.size

    def is_next(self, piece: Piece) -> bool:
        """Whether this piece's audio is the next to go out."""
        return piece.index == self._cursor

    def again(self, piece: Piece, now: float) -> bool:
        """A piece that failed is to be spoken again: forget its audio or, where some of it is laid
        down already, what is not; the next attempt says the rest then. False if it cannot."""
        if piece.laid and not piece.break_off(now):
            return False
        self.buffered -= piece.buffered
        piece.chunks.clear()
        piece.told.clear()
        piece.buffered = piece.made = 0
        piece.first_audio_at = None
        return True

    def settled(self, piece: Piece) -> None:
        """The engine has no more to do with a piece: let go of what only it needed, which is half a
        megabyte a piece of a turn that may have thousands."""
        piece.guard = None
        if piece.index:
            self.pieces[piece.index - 1].context = None

    # -- out -------------------------------------------------------------------------------------

    def take(self) -> ServerMessage | Packet | None:
        """The next thing to send, or None while there is nothing."""
        while not self._ready:
            if not self._advance():
                return None
        item = self._ready.popleft()
        if isinstance(item, Packet):
            self.sent += item.samples
            self.packets += 1
        elif isinstance(item, TurnDone):
            self.done = True
        return item

    @property
    def onset(self) -> int:
        """Samples from the start of the turn to its first audible one."""
        return self._timeline.onset

    @property
    def heard_piece(self) -> Piece | None:
        """The piece whose audio is going out now."""
        return self.pieces[min(self._cursor, len(self.pieces) - 1)] if self.pieces else None

    def _advance(self) -> bool:
        """One bounded step of work; False when there is none."""
        if self._flushes and self._flushes[0][0] <= self._cursor:
            _, flush_id = self._flushes.popleft()
            self._ready.append(
                FlushDone(id=flush_id, turn=self.number, samples=self._timeline.samples)
            )
        elif self._cursor < len(self.pieces):
            return self._lay(self.pieces[self._cursor])
        elif self.ended and not self._finished:
            self._finished = True
            self._ready.extend(self._timeline.finish())
            self._ready.append(self._summary())
        else:
            return False
        return True

    def _lay(self, piece: Piece) -> bool:
        if piece.broken:
            piece.broken = False
            self._ready.extend(self._timeline.end_piece(SHORTEST))
            return True
        if piece.chunks:
            if not piece.laid and not self._begin(piece):
                return False
            chunk = piece.chunks.popleft()
            piece.buffered -= chunk.size
            self.buffered -= chunk.size
            before = self._timeline.samples
            packets = self._timeline.feed(chunk)
            if piece.origin is None and self._timeline.audible:
                piece.origin = before - self._timeline.skipped
                if piece.start_sample is None:
                    piece.start_sample = before
                    self._caption(piece)
            elif self._early_words and len(piece.words()) > piece.passed_on:
                self._caption(piece)
            self._ready.extend(packets)
            return True
        if piece.state not in (State.DONE, State.FAILED):
            return False
        if piece.end_sample is None:
            last = self.ended and piece.index == len(self.pieces) - 1
            piece.end_sample = self._timeline.samples - self._timeline.trailing
            if piece.start_sample is None:
                piece.start_sample = piece.end_sample
            pause = SHORTEST if last else self._pauses[piece.pause]
            packets = self._timeline.end_piece(pause, STEP_SAMPLES)
        else:
            packets = self._timeline.rest(STEP_SAMPLES)
        if packets:
            self._ready.extend(packets)
            return True
        self._cursor += 1
        self._caption(piece)
        if piece.error is not None:
            self._ready.append(failure(self.number, piece, piece.error))
        return True

    def _begin(self, piece: Piece) -> bool:
        """Lay down a piece from its start on; False while too little of it is there."""
        speaker = (piece.voicing.voice, CJK.search(piece.spoken) is not None)
        wanted = self._timeline.wants(speaker)
        if piece.buffered < wanted and piece.state is State.RUNNING:
            return False
        ahead = np.concatenate(piece.chunks)[:wanted] if wanted else None
        self._timeline.begin(speaker, ahead)
        piece.laid = True
        return True

    def _caption(self, piece: Piece) -> None:
        if self._captions and piece.start_sample is not None:
            piece.passed_on = len(piece.words())
            early = self._early_words
            self._ready.append(caption(self.number, self.pieces, piece, early=early))

    def _summary(self) -> TurnDone:
        return TurnDone(
            turn=self.number,
            samples=self._timeline.samples,
            ms=milliseconds(self._timeline.samples),
            packets=self.packets + sum(isinstance(item, Packet) for item in self._ready),
            pieces=len(self.pieces),
            failed=sum(piece.state is State.FAILED for piece in self.pieces),
            characters=self.characters,
        )

    # -- interruption ----------------------------------------------------------------------------

    def cancel(self, heard: int, *, estimated: bool) -> list[ServerMessage]:
        """Drop all that is not sent; `heard` is the listener's position in samples."""
        messages: list[ServerMessage] = [
            FlushDone(id=flush_id, turn=self.number, samples=self._clock(), cancelled=True)
            for _, flush_id in self._flushes
        ]
        sent = self._clock()
        heard = min(heard, sent)
        text = "".join(self._written)
        until = len(text) if self._heard_all(heard) else heard_characters(self.pieces, heard)
        messages.append(
            TurnCancelled(
                turn=self.number,
                spoken=text[:until],
                unspoken=text[until:],
                sent_samples=sent,
                sent_ms=milliseconds(sent),
                heard_samples=heard,
                heard_ms=milliseconds(heard),
                estimated=estimated,
                completed=self.done,
            )
        )
        self._ready.clear()
        self._flushes.clear()
        for piece in self.pieces:
            piece.guard = piece.context = None
            piece.chunks.clear()
        self.ended = self.done = self._finished = True
        self.buffered = 0
        return messages

    def _clock(self) -> int:
        """Samples of the turn sent, on its own clock."""
        return min(max(0, self.sent - self._pre_skip), self._timeline.samples)

    def _heard_all(self, heard: int) -> bool:
        if not self.done or not self.pieces:
            return self.done
        end = self.pieces[-1].end_sample
        return end is not None and heard >= end
