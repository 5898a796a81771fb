"""The wire of `/v1/stream`: message types, the binary header, error codes. See docs/protocol.md.

Fields nobody knows are ignored, so that newer clients can talk to older servers; `session.started`
lists those of `session.start`.
"""

from __future__ import annotations

from gateway.protocol.audio import (
    FORMATS,
    HEADER,
    HEADER_VERSION,
    AudioFlag,
    AudioHeader,
    AudioKind,
    unpack_audio,
)
from gateway.protocol.client import (
    CLIENT_MESSAGES,
    ClientMessage,
    Ping,
    Playback,
    SessionEnd,
    SessionResume,
    SessionStart,
    SessionUpdate,
    TextAppend,
    TextFlush,
    TurnCancel,
    TurnEnd,
    TurnStart,
    parse,
    unknown_fields,
)
from gateway.protocol.server import (
    SERVER_MESSAGES,
    Caption,
    Error,
    FlowPause,
    FlowResume,
    FlushDone,
    Notice,
    Pong,
    ProtocolError,
    ServerDraining,
    ServerMessage,
    SessionEnded,
    SessionResumed,
    SessionStarted,
    SessionUpdated,
    TurnCancelled,
    TurnDone,
    TurnStarted,
)

PROTOCOL = 1
PATH = "/v1/stream"

__all__ = [
    "CLIENT_MESSAGES",
    "FORMATS",
    "HEADER",
    "HEADER_VERSION",
    "PATH",
    "PROTOCOL",
    "SERVER_MESSAGES",
    "AudioFlag",
    "AudioHeader",
    "AudioKind",
    "Caption",
    "ClientMessage",
    "Error",
    "FlowPause",
    "FlowResume",
    "FlushDone",
    "Notice",
    "Ping",
    "Playback",
    "Pong",
    "ProtocolError",
    "ServerDraining",
    "ServerMessage",
    "SessionEnd",
    "SessionEnded",
    "SessionResume",
    "SessionResumed",
    "SessionStart",
    "SessionStarted",
    "SessionUpdate",
    "SessionUpdated",
    "TextAppend",
    "TextFlush",
    "TurnCancel",
    "TurnCancelled",
    "TurnDone",
    "TurnEnd",
    "TurnStart",
    "TurnStarted",
    "parse",
    "unknown_fields",
    "unpack_audio",
]
