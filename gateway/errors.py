"""Every error a client can meet: stable codes, what they mean, what to do. See docs/protocol.md."""

from __future__ import annotations

from typing import NamedTuple


class ErrorKind(NamedTuple):
    """What an error code means. `close` is the WebSocket close code when it ends the session,
    `status` that of HTTP when it refuses one.
    """

    meaning: str
    hint: str
    close: int | None = None
    status: int = 503


ERRORS: dict[str, ErrorKind] = {
    # What the client sent.
    "bad_json": ErrorKind(
        "The message is not JSON, or not a JSON object.", "Send one JSON object a text message."
    ),
    "unknown_type": ErrorKind(
        "The message type is missing or unknown.", "See the list of client messages."
    ),
    "bad_field": ErrorKind(
        "A field is missing, has the wrong type or is out of range; `field` names it.",
        "Correct the field; nothing of the message was used.",
    ),
    "binary_not_accepted": ErrorKind(
        "The client sent a binary message.", "Text goes in `text.append`."
    ),
    "not_started": ErrorKind("`session.start` has to come first.", "Send `session.start`."),
    "already_started": ErrorKind(
        "`session.start` came twice.", "Use `session.update`, or open another connection."
    ),
    "unknown_session": ErrorKind(
        "No session has this token.", "Open a session with `session.start`."
    ),
    "session_expired": ErrorKind(
        "The session with this token is over.", "Open another one with `session.start`."
    ),
    "replay_gap": ErrorKind(
        "What this client lacks is not kept any more.",
        "Open another session with `session.start`; read faster.",
    ),
    "session_ending": ErrorKind(
        "`session.end` was sent; no more text is taken.", "Open another connection."
    ),
    "unknown_voice": ErrorKind("No voice has this id.", "Choose one of `available`."),
    "unknown_format": ErrorKind("No audio format has this name.", "Choose one of `available`."),
    "unsupported_language": ErrorKind(
        "This language cannot be spoken.", "Choose one of `available`, or `auto`."
    ),
    "bad_speed": ErrorKind(
        "The speed lies outside what the engine can do.", "See `limits` in `session.started`."
    ),
    "text_too_long": ErrorKind(
        "A message, or one piece of it, has more characters than the limit.",
        "Send the text in smaller parts.",
    ),
    "backlog_full": ErrorKind(
        "Too much text waits to be spoken; this message was not taken.",
        "Wait for `caption` or `turn.done` before sending more.",
    ),
    "text_rate": ErrorKind(
        "Text comes much faster than it could be spoken; this message was not taken.",
        "Send it again after `retry_after_ms`; heed `flow.pause`.",
    ),
    "turn_too_long": ErrorKind(
        "The turn has more text than a turn can hold; this message was not taken.",
        "Send `turn.end` and go on in a new turn.",
    ),
    "too_many_turns": ErrorKind(
        "Too many turns wait to be spoken; this message was not taken.", "Wait for `turn.done`."
    ),
    "too_many_flushes": ErrorKind(
        "Too many flushes wait to be answered; this one was not taken.", "Wait for `flush.done`."
    ),
    "no_turn": ErrorKind(
        "There is no such turn: none is open, or the one named is over and was heard.",
        "Harmless when a turn ended at that moment.",
    ),
    # One piece of text; the turn goes on with the next.
    "unpronounceable": ErrorKind(
        "Nothing in this piece can be spoken.", "Leave it out, or write it in words."
    ),
    "empty_text": ErrorKind("Nothing was left to speak.", "Send text with letters or digits."),
    "runaway": ErrorKind(
        "The model did not find the end of this piece; it was stopped.", "Reword the text."
    ),
    "frame_ring_overrun": ErrorKind(
        "The piece stayed in the engine longer than its memory lasts.",
        "Try again; lower the load if it comes back.",
    ),
    "context_expired": ErrorKind("The piece before it was forgotten.", "Try again."),
    "engine_full": ErrorKind(
        "More voices were asked for lately than the engine has room for.",
        "Use one of the listed voices, or try again in some minutes.",
    ),
    "engine_restarting": ErrorKind("The speech engine is being restarted.", "Try again shortly."),
    "engine_stopped": ErrorKind("The speech engine has stopped.", "Try again later."),
    "piece_failed": ErrorKind(
        "A fault in the server kept this piece from being spoken.", "Try again; tell the operator."
    ),
    # The end of the session.
    "capacity": ErrorKind(
        "The server is full.", "Come back after `retry_after_ms`, with some jitter.", 1013
    ),
    "too_many_sessions": ErrorKind(
        "This client has as many sessions as one may have.",
        "End one of them, or come back after `retry_after_ms`.",
        1013,
        429,
    ),
    "unauthorized": ErrorKind(
        "No key or token was shown, or it is not in force.",
        "Send `Authorization: Bearer KEY`; pages get a token from POST /v1/tokens.",
        1008,
        401,
    ),
    "forbidden": ErrorKind(
        "This key may not do this.",
        "The operator gives scopes: voxgate keys add --scope.",
        1008,
        403,
    ),
    "too_many_requests": ErrorKind(
        "This key has made as many requests as it may for now.",
        "Come back after `retry_after_ms`.",
        1013,
        429,
    ),
    "quota_exceeded": ErrorKind(
        "This key has had as much text spoken as it may for now; this message was not taken.",
        "Send it again after `retry_after_ms`.",
        status=429,
    ),
    "no_tokens": ErrorKind(
        "This server gives out no tokens.",
        "The operator sets keys_file and token_secret_file.",
        status=404,
    ),
    "origin_not_allowed": ErrorKind(
        "Pages of this origin may not connect.", "The operator can allow it: `allowed_origins`."
    ),
    "starting": ErrorKind(
        "The speech engine is still starting.", "Come back after `retry_after_ms`.", 1013
    ),
    "draining": ErrorKind(
        "The server is being shut down; what was sent before is still spoken.",
        "Connect again; another server may answer.",
        1012,
    ),
    "taken_over": ErrorKind("The session goes on over another connection.", "Use that one.", 1008),
    "start_timeout": ErrorKind(
        "No `session.start` came in time.", "Send it right after connecting.", 1008
    ),
    "slow_reader": ErrorKind(
        "The client took no audio for too long while audio waited.",
        "Read faster, ask for a lower bitrate, or use Opus instead of PCM.",
        1008,
    ),
    "internal": ErrorKind("A fault in the server.", "Connect again; tell the operator.", 1011),
}
"""Every code a client can meet. Close codes without a message: 1007 (invalid UTF-8), 1009 (message
larger than `limits.message_bytes`), 1011 (no answer to pings)."""
