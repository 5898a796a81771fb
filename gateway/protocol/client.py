"""What a client sends, and how it is read: strict about types, naming the field that is wrong."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from gateway.protocol.server import ProtocolError


class ClientModel(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", allow_inf_nan=False)


Seed = Annotated[int, Field(ge=0, lt=2**32)]
Style = Annotated[str, Field(max_length=200)]
Label = Annotated[str, Field(max_length=64)]
Turn = Annotated[int, Field(ge=1, lt=2**32)]
Position = Annotated[int, Field(ge=0, lt=2**53)]
PauseLength = Annotated[int, Field(ge=70, le=2_000)]


class SessionStart(ClientModel):
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
    early_words: bool = False
    live: bool = True
    interrupt: bool = False
    access_token: Annotated[str, Field(max_length=1024)] | None = None
    resume: bool = False


class SessionResume(ClientModel):
    """Goes on with a session whose connection was lost.

    `received`: how many messages of it the client has, JSON and audio, over all its connections.
    """

    type: Literal["session.resume"] = "session.resume"
    token: Annotated[str, Field(max_length=128)]
    received: Annotated[int, Field(ge=0, lt=2**53)]


class SessionUpdate(ClientModel):
    """Changes how the turns that start after it are spoken, or all text sent after it."""

    type: Literal["session.update"] = "session.update"
    voice: str | None = None
    language: str | None = None
    speed: float | None = None
    style: Style | None = None
    seed: Seed | None = None
    scope: Literal["turn", "piece"] = "turn"


class TextAppend(ClientModel):
    """More text of the current turn; opens a turn when none is open."""

    type: Literal["text.append"] = "text.append"
    text: str


class TextFlush(ClientModel):
    """Speak all text so far without waiting for more; answered by `flush.done`."""

    type: Literal["text.flush"] = "text.flush"
    id: Label | None = None


class TurnStart(ClientModel):
    """Opens a turn; one that is open gets no more text.

    With `interrupt` it cancels, like `turn.cancel`, every turn not yet heard to its end.
    """

    type: Literal["turn.start"] = "turn.start"
    interrupt: bool = False
    style: Style | None = None
    played_samples: Position | None = None
    played_ms: Annotated[float, Field(ge=0, le=1e9)] | None = None


class TurnEnd(ClientModel):
    """No more text in this turn."""

    type: Literal["turn.end"] = "turn.end"


class TurnCancel(ClientModel):
    """Stop at once: the turn named, or every turn not yet heard to its end.

    `played_samples` or `played_ms` is the listener's position in the turn now heard.
    """

    type: Literal["turn.cancel"] = "turn.cancel"
    turn: Turn | None = None
    played_samples: Position | None = None
    played_ms: Annotated[float, Field(ge=0, le=1e9)] | None = None


class Playback(ClientModel):
    """What the listener hears now; keeps the server's idea of the lead true."""

    type: Literal["playback"] = "playback"
    turn: Turn
    played_samples: Position | None = None
    played_ms: Annotated[float, Field(ge=0, le=1e9)] | None = None
    paused: bool = False


class SessionEnd(ClientModel):
    """Speak what is open, then close."""

    type: Literal["session.end"] = "session.end"


class Ping(ClientModel):
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
CLIENT_MESSAGES: dict[str, type[ClientModel]] = {
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
