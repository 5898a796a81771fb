"""What the server sends as JSON."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

import orjson

from gateway.errors import ERRORS


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerMessage:
    """Fields that are `None` are left out on the wire."""

    type: ClassVar[str]

    def encode(self) -> str:
        values: dict[str, Any] = {"type": self.type}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None:
                values[field.name] = value
        return orjson.dumps(values).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStarted(ServerMessage):
    """What is in force. `audio` describes the binary messages; `limits` are in their own words."""

    type: ClassVar[str] = "session.started"
    protocol: int
    session: str
    token: str | None = None
    voice: str
    language: str
    speed: float
    style: str
    seed: int | None = None
    control_tags: bool
    captions: bool
    live: bool
    interrupt: bool
    audio: dict[str, Any]
    limits: dict[str, Any]
    voices: list[str]
    styles: list[str]
    unknown: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionResumed(ServerMessage):
    """`replayed` messages follow that were sent before; the server has `received` of the client's,
    with `turn_characters` of the open turn's text."""

    type: ClassVar[str] = "session.resumed"
    session: str
    received: int
    characters: int
    turn: int | None = None
    turn_characters: int | None = None
    replayed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionUpdated(ServerMessage):
    """In force from the next turn on, or from the next piece of `turn`."""

    type: ClassVar[str] = "session.updated"
    turn: int | None = None
    voice: str
    language: str
    speed: float
    style: str
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice(ServerMessage):
    """A message was taken, but not all of what it says has the effect its writer may expect.

    `turn`, `start`: the text from there on is not spoken.
    """

    type: ClassVar[str] = "warning"
    code: str
    message: str
    request: str | None = None
    field: str | None = None
    available: list[str] | None = None
    turn: int | None = None
    start: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStarted(ServerMessage):
    type: ClassVar[str] = "turn.started"
    turn: int
    voice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Caption(ServerMessage):
    """One piece of text on the sample clock of its turn.

    Sent before the piece's first audio, and again with `final`, `end_sample` and `words` after its
    last; where `early_words` was asked for, in between with the words that are certain. `start` and
    `end` count code points of the turn's written text. A word has `text`, `start`, `end`,
    `start_sample`, `end_sample`, and `spoken` where that is not `text`.
    """

    type: ClassVar[str] = "caption"
    turn: int
    piece: int
    text: str
    spoken: str
    start: int
    end: int
    start_sample: int
    end_sample: int | None = None
    final: bool = False
    words: list[dict[str, Any]] | None = None
    estimated: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushDone(ServerMessage):
    type: ClassVar[str] = "flush.done"
    id: str | None = None
    turn: int | None = None
    samples: int = 0
    cancelled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnDone(ServerMessage):
    type: ClassVar[str] = "turn.done"
    turn: int
    samples: int
    ms: int
    packets: int
    pieces: int
    failed: int
    characters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnCancelled(ServerMessage):
    """`spoken + unspoken` is the turn's whole written text. Nothing of the turn follows."""

    type: ClassVar[str] = "turn.cancelled"
    turn: int
    spoken: str
    unspoken: str
    sent_samples: int
    sent_ms: int
    heard_samples: int
    heard_ms: int
    estimated: bool
    completed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEnded(ServerMessage):
    type: ClassVar[str] = "session.ended"
    turns: int
    samples: int
    characters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pong(ServerMessage):
    type: ClassVar[str] = "pong"
    id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowPause(ServerMessage):
    """Please send no more text for now: `backlog` characters wait."""

    type: ClassVar[str] = "flow.pause"
    backlog: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowResume(ServerMessage):
    type: ClassVar[str] = "flow.resume"
    backlog: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerDraining(ServerMessage):
    """The server is being shut down: the open turn may be finished, no new one begins here.

    `deadline_ms`: what is not spoken by then is cancelled. `url`: where to go, if elsewhere than
    the address this client knows.
    """

    type: ClassVar[str] = "server.draining"
    deadline_ms: int
    retry_after_ms: int
    url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Error(ServerMessage):
    """`request` is the type of the message that was not taken; `start`/`end` the text lost."""

    type: ClassVar[str] = "error"
    code: str
    message: str
    hint: str
    fatal: bool = False
    request: str | None = None
    field: str | None = None
    available: list[str] | None = None
    retry_after_ms: int | None = None
    turn: int | None = None
    piece: int | None = None
    start: int | None = None
    end: int | None = None


SERVER_MESSAGES: dict[str, type[ServerMessage]] = {
    model.type: model for model in ServerMessage.__subclasses__()
}


class ProtocolError(Exception):
    """A message that was not taken. `details` are extra fields of the `error` message."""

    def __init__(self, code: str, message: str | None = None, **details: Any) -> None:
        kind = ERRORS[code]
        super().__init__(code)
        self.code = code
        self.error = Error(
            code=code,
            message=message or kind.meaning,
            hint=kind.hint,
            fatal=kind.close is not None,
            **details,
        )
