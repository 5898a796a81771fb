"""Packets of a session on their way out: headers, the session's sequence, what is measured."""

from __future__ import annotations

from engine.api import SAMPLE_RATE
from gateway.actions import Observer
from gateway.protocol import AudioFlag, AudioHeader
from gateway.timeline import Packet
from gateway.turn import Turn
from gateway.turns import Turns

_CLOSE_SECONDS = 0.04
_WRITTEN_SECONDS = 0.5
"""Text that came later than this may be the cause, not the engine."""


class Outlet:
    """Numbers packets and tells how well the listener is served."""

    def __init__(self, turns: Turns, observer: Observer, now: float) -> None:
        self._turns = turns
        self._observer = observer
        self._sequence = 0
        self.connected_at = now
        """Silence from before that is the network's, not an underrun."""
        self.live = True
        """Whether anybody listens as it comes."""

    def packet(self, turn: Turn, packet: Packet, now: float) -> bytes:
        """The binary message for a packet that goes out now."""
        flags = AudioFlag.PAUSE if packet.pause else AudioFlag(0)
        lead = self._turns.playhead.lead(now)
        margin = self._turns.playhead.margin(now)
        dry_since = self._turns.sent(turn, packet, now)
        if packet.position == 0:
            flags |= AudioFlag.FIRST
            if turn.awaited:
                waited = now - turn.pieces[0].cut_at
                self._observer.first_packet(waited)
                self._observer.first_audible(waited + turn.onset / SAMPLE_RATE)
        elif self.live and dry_since is not None and dry_since > self.connected_at:
            piece = turn.heard_piece
            if piece is not None and piece.cut_at <= dry_since:
                self._observer.underrun(now - dry_since)
        elif self.live and margin is not None and margin < _CLOSE_SECONDS:
            piece = turn.heard_piece
            if piece is not None and piece.cut_at <= now - _WRITTEN_SECONDS:
                self._observer.close_call()
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
