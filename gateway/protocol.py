"""The wire of `/v1/stream`: message types, the binary header, error codes. See docs/protocol.md.

Parsing is strict about types and names the field that is wrong. Fields nobody knows are ignored,
so that newer clients can talk to older servers; `session.started` lists those of `session.start`.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import orjson
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from gateway.errors import ERRORS

PROTOCOL = 1
PATH = "/v1/stream"


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


# -- client messages -------------------------------------------------------------------------------


class _Message(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", allow_inf_nan=False)


Seed = Annotated[int, Field(ge=0, lt=2**32)]
Style = Annotated[str, Field(max_length=200)]
Label = Annotated[str, Field(max_length=64)]
Turn = Annotated[int, Field(ge=1, lt=2**32)]
Position = Annotated[int, Field(ge=0, lt=2**53)]
PauseLength = Annotated[int, Field(ge=70, le=2_000)]


class SessionStart(_Message):
    """Opens the session. Everything has a default."""

    model_config = ConfigDict(extra="allow")

    type: Literal["session.start"] = "session.start"
    voice: str = "default"
    language: str = "auto"
    speed: float = 1.0
    style: Style | None = None
    seed: Seed | None = None
    format: str = "opus"
    frame_ms: Literal[10, 20, 40, 60] = 20
    sample_rate: Literal[8_000, 12_000, 16_000, 24_000, 48_000] | None = None
    bitrate: Annotated[int, Field(ge=16_000, le=96_000)] = 32_000
    complexity: Annotated[int, Field(ge=0, le=10)] | None = None
    fec: bool = False
    dtx: bool = False
    clause_pause_ms: PauseLength | None = None
    sentence_pause_ms: PauseLength | None = None
    paragraph_pause_ms: PauseLength | None = None
    control_tags: bool = False
    lexicon: dict[str, str] | None = None
    code_phrase: Annotated[str, Field(max_length=200)] | None = None
    emoji: Literal["drop", "name"] = "drop"
    urls: Literal["host", "drop", "keep"] = "host"
    captions: bool = True
    live: bool = True
    interrupt: bool = False
    access_token: Annotated[str, Field(max_length=1024)] | None = None
    resume: bool = False


class SessionResume(_Message):
    """Goes on with a session whose connection was lost.

    `received`: how many messages of it the client has, JSON and audio, over all its connections.
    """

    type: Literal["session.resume"] = "session.resume"
    token: Annotated[str, Field(max_length=128)]
    received: Annotated[int, Field(ge=0, lt=2**53)]


class SessionUpdate(_Message):
    """Changes how the turns that start after it are spoken, or all text sent after it."""

    type: Literal["session.update"] = "session.update"
    voice: str | None = None
    language: str | None = None
    speed: float | None = None
    style: Style | None = None
    seed: Seed | None = None
    scope: Literal["turn", "piece"] = "turn"


class TextAppend(_Message):
    """More text of the current turn; opens a turn when none is open."""

    type: Literal["text.append"] = "text.append"
    text: str


class TextFlush(_Message):
    """Speak all text so far without waiting for more; answered by `flush.done`."""

    type: Literal["text.flush"] = "text.flush"
    id: Label | None = None


class TurnStart(_Message):
    """Opens a turn; one that is open gets no more text.

    With `interrupt` it cancels, like `turn.cancel`, every turn not yet heard to its end.
    """

    type: Literal["turn.start"] = "turn.start"
    interrupt: bool = False
    style: Style | None = None
    played_samples: Position | None = None
    played_ms: Annotated[float, Field(ge=0, le=1e9)] | None = None


class TurnEnd(_Message):
    """No more text in this turn."""

    type: Literal["turn.end"] = "turn.end"


class TurnCancel(_Message):
    """Stop at once: the turn named, or every turn not yet heard to its end.

    `played_samples` or `played_ms` is the listener's position in the turn now heard.
    """

    type: Literal["turn.cancel"] = "turn.cancel"
    turn: Turn | None = None
    played_samples: Position | None = None
    played_ms: Annotated[float, Field(ge=0, le=1e9)] | None = None


class Playback(_Message):
    """What the listener hears now; keeps the server's idea of the lead true."""

    type: Literal["playback"] = "playback"
    turn: Turn
    played_samples: Position | None = None
    played_ms: Annotated[float, Field(ge=0, le=1e9)] | None = None
    paused: bool = False


class SessionEnd(_Message):
    """Speak what is open, then close."""

    type: Literal["session.end"] = "session.end"


class Ping(_Message):
    """Answered by `pong`."""

    type: Literal["ping"] = "ping"
    id: Label | None = None


ClientMessage = (
    SessionStart
    | SessionResume
    | SessionUpdate
    | TextAppend
    | TextFlush
    | TurnStart
    | TurnEnd
    | TurnCancel
    | Playback
    | SessionEnd
    | Ping
)
CLIENT_MESSAGES: dict[str, type[_Message]] = {
    str(model.model_fields["type"].default): model for model in ClientMessage.__args__
}
_CLIENT_MESSAGE: TypeAdapter[ClientMessage] = TypeAdapter(
    Annotated[ClientMessage, Field(discriminator="type")]
)


def parse(raw: str | bytes) -> ClientMessage:
    """One client message. Raises `ProtocolError` with a code that says what is wrong."""
    try:
        return _CLIENT_MESSAGE.validate_json(raw)
    except ValidationError as invalid:
        raise _explain(invalid) from None


def _explain(invalid: ValidationError) -> ProtocolError:
    first = invalid.errors(include_url=False, include_input=False)[0]
    kind, what = first["type"], first["msg"]
    if kind == "json_invalid":
        return ProtocolError("bad_json", f"The message is not JSON: {first['ctx']['error']}.")
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        known = sorted(CLIENT_MESSAGES)
        return ProtocolError("unknown_type", available=known)
    location = [str(part) for part in first["loc"]]
    if len(location) < 2:
        return ProtocolError("bad_json")
    field = ".".join(location[1:])
    return ProtocolError("bad_field", f"{location[0]}: `{field}`: {what}.", field=field)


def unknown_fields(start: SessionStart) -> list[str]:
    """Names in `session.start` this server does not know."""
    return sorted(start.model_extra or {})


# -- server messages -------------------------------------------------------------------------------


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
    """A wish that this server cannot grant; the message it stood in was taken without it."""

    type: ClassVar[str] = "warning"
    code: str
    message: str
    request: str | None = None
    field: str | None = None
    available: list[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStarted(ServerMessage):
    type: ClassVar[str] = "turn.started"
    turn: int
    voice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Caption(ServerMessage):
    """One piece of text on the sample clock of its turn.

    Sent before the piece's first audio, and again with `final`, `end_sample` and `words` after its
    last. `start` and `end` count code points of the turn's written text. A word has `text`,
    `start`, `end`, `start_sample`, `end_sample`, and `spoken` where that is not `text`.
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

# -- audio -----------------------------------------------------------------------------------------


class AudioKind(enum.IntEnum):
    """What the payload of a binary message is."""

    OPUS = 1
    PCM_S16LE = 2
    MULAW = 3
    ALAW = 4
    OGG_OPUS = 5
    WEBM_OPUS = 6


FORMATS: dict[str, AudioKind] = {kind.name.lower(): kind for kind in AudioKind}


class AudioFlag(enum.IntFlag):
    FIRST = 1
    """The first packet of its turn: reset the decoder."""
    PAUSE = 2
    """Nothing but silence put in by the gateway."""


HEADER = struct.Struct("<BBHIIIQ")
"""version u8, kind u8, flags u16, turn u32, sequence u32, samples u32, position u64: 24 bytes."""
HEADER_VERSION = 1


class AudioHeader(NamedTuple):
    """`samples` decoded samples at `position` of the turn, both before `pre_skip` is taken off.

    `sequence` counts the binary messages of a session from 0.
    """

    kind: int
    flags: int
    turn: int
    sequence: int
    samples: int
    position: int

    def pack(self) -> bytes:
        return HEADER.pack(HEADER_VERSION, *self)


def unpack_audio(message: bytes) -> tuple[AudioHeader, bytes]:
    """Header and payload of a binary message. Raises `ValueError`."""
    if len(message) < HEADER.size:
        raise ValueError(f"an audio message has at least {HEADER.size} bytes, not {len(message)}")
    version, *rest = HEADER.unpack_from(message)
    if version != HEADER_VERSION:
        raise ValueError(f"audio header version {version} is not {HEADER_VERSION}")
    return AudioHeader(*rest), message[HEADER.size :]
