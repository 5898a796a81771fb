"""What a session wants done by the shell around it, and what it tells of itself."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from engine.api import SpeechRequest


class StartPiece(NamedTuple):
    """Ask the engine for a piece and feed its audio back under `key`."""

    key: int
    request: SpeechRequest


class CancelPiece(NamedTuple):
    """Close the engine's iterator of a piece at once."""

    key: int


class Resume(NamedTuple):
    """Hand the connection over to the session with this token, or `refuse`.

    Its client has the first `received` messages of that session.
    """

    token: str
    received: int


Command = StartPiece | CancelPiece | Resume


class Close(NamedTuple):
    """Nothing more to send: close the WebSocket."""

    code: int
    reason: str


Outgoing = str | bytes | Close


class Observer(Protocol):
    """What a session tells of itself, for metrics and logs. `turn` and `piece` are numbers."""

    def turn_started(self, turn: int) -> None: ...
    def turn_over(self, outcome: str, turn: int) -> None: ...
    def first_packet(self, seconds: float) -> None: ...
    def first_audible(self, seconds: float) -> None: ...
    def packet(self, payload_bytes: int, lead: float) -> None: ...
    def underrun(self, seconds: float) -> None: ...
    def close_call(self) -> None: ...
    def piece_started(self, turn: int, piece: int, attempt: int, text: str) -> None: ...
    def piece_over(self, outcome: str, turn: int, piece: int) -> None: ...
    def runaway(self, reason: str, outcome: str) -> None: ...
    def prompt(self, tokens: int, cached: int) -> None: ...
    def error(self, code: str) -> None: ...
