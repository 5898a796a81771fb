"""Everything an operator can set about the gateway, with the defaults and their reasons.

`configuration.py` reads them from flags, environment and file; `safety.py` refuses combinations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import NamedTuple

PREFIX = "VOXGATE_"


class SettingError(ValueError):
    """A setting has a value that cannot be used."""


class _Kind(NamedTuple):
    read: Callable[[str], object]
    words: str


def _read_bool(text: str) -> bool:
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off"):
        return False
    raise ValueError(text)


KINDS = {
    "int": _Kind(int, "a whole number"),
    "float": _Kind(float, "a number"),
    "str": _Kind(str, "text"),
    "bool": _Kind(_read_bool, "true or false"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Times are seconds, sizes are named. Every field is also a flag of `voxgate serve`, an
    environment variable (the name in capitals after `VOXGATE_`) and a key of the settings file.
    """

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0: all of this machine."""
    port: int = 8080
    """0: any that is free."""

    insecure: bool = False
    """Listen beyond this machine without keys or without TLS all the same."""
    behind_proxy: bool = False
    """A proxy in front ends TLS and is the only one that reaches this port. Its `X-Forwarded-For`
    and `X-Forwarded-Proto`, which it has to set itself, say who a client is."""
    tls_cert: str = ""
    """PEM file of the certificate chain; with `tls_key` the port speaks TLS only. Read again on
    SIGHUP."""
    tls_key: str = ""
    """PEM file of its private key."""
    tls_client_ca: str = ""
    """PEM file of authorities; clients must show a certificate of one of them."""
    keys_file: str = ""
    """API keys, hashed; see `voxgate keys`. Empty: no keys, everybody may speak. Read again on
    SIGHUP."""
    token_secret_file: str = ""
    """File with at least 32 random bytes that sign short-lived tokens for browsers. Or the
    variable `VOXGATE_TOKEN_SECRET`."""
    token_seconds: int = 300
    """How long such a token opens sessions, at most. A session goes on after that."""
    reload_seconds: float = 0.0
    """Look this often whether the files of keys, lexicon, certificate and voices changed; 0: only
    on SIGHUP."""
    open_metrics: bool = False
    """`/metrics` needs no key, where keys are used."""

    max_connections: int = 2048
    """Sockets at once; those beyond are closed at once."""
    max_connections_per_client: int = 0
    """The same of one address; 0: no limit."""
    handshake_timeout_seconds: float = 10.0
    """Within so long a request's head must be there, from the first byte or the end of the request
    before."""
    body_timeout_seconds: float = 30.0
    """Within so long the whole body of a request must be there."""
    max_header_bytes: int = 16_384
    """The head of a request, all of it."""
    max_body_bytes: int = 4_194_304
    """The body of a request."""

    max_sessions: int = 256
    """Sessions at once, those that wait to be resumed too."""
    max_sessions_per_client: int = 0
    """Sessions at once of one address, those that wait to be resumed too; 0: as many as there are.
    Behind a proxy all clients may have one address: see `client_header`."""
    client_header: str = ""
    """Header by which a trusted proxy names the client, such as `X-Client-Id`; must be one that the
    proxy always sets itself."""
    allowed_origins: str = ""
    """Origins of web pages that may connect besides this server's own, with commas; `*`: all."""
    capacity_share: float = 0.85
    """Of the streams the engine was measured to carry without a gap, how many are let in; 0: all,
    whatever becomes of those who listen already."""
    max_waiting_pieces: int = 32
    """Pieces waiting in the engine beyond which new sessions are refused."""
    retry_after_ms: int = 2000
    """When those who were refused are asked to come back."""

    max_request_chars: int = 20_000
    """Text of one HTTP request, or of one task of a batch."""
    jobs_dir: str = ""
    """Where batch jobs and their audio are kept over a restart. Empty: ~/.local/state/voxgate."""
    jobs_keep_seconds: float = 86_400.0
    """A job that is done is deleted after this."""
    max_jobs: int = 256
    """Batch jobs kept, done or not."""
    max_job_tasks: int = 1_000
    """Texts of one job."""

    max_message_bytes: int = 131_072
    """One message of a WebSocket."""
    max_append_chars: int = 8_000
    """Text of one message."""
    max_backlog_chars: int = 20_000
    """Text accepted but not yet spoken, of all open turns of a session."""
    max_turn_chars: int = 200_000
    """A turn is kept whole until it was heard, so that a cancel can tell what was not."""
    chars_per_second: float = 2_000.0
    """Text of a session in the long run: a hundred times speech. Twice `max_backlog_chars` may come
    at once."""
    messages_per_second: float = 1_000.0
    """Messages of a connection in the long run; they are read slower then, not refused."""
    max_open_turns: int = 16
    """Turns of a session that are not spoken to their end."""
    max_pending_flushes: int = 64
    """Flushes of a session that are not answered."""
    audio_buffer_seconds: float = 30.0
    """Audio of one session made but not yet taken by its socket."""

    pieces_ahead: int = 2
    """Pieces of one session in the engine at once."""
    hold_lead_seconds: float = 6.0
    """A live listener this far ahead gets no further piece made for now."""
    overlap_lead_seconds: float = 0.35
    """The next piece joins the one in the making when the listener would have less than this in
    hand at its end. Otherwise it waits for that end and continues its prosody."""
    piece_retry_seconds: float = 5.0
    """A piece that failed before any of its audio was used is tried again for this long."""

    start_timeout_seconds: float = 10.0
    """Within so long `session.start` must come."""
    ping_interval_seconds: float = 10.0
    """How often a peer is asked whether it is there."""
    ping_timeout_seconds: float = 14.0
    """A peer that is gone without a word is found within 30 s: it may have sent something right
    after a ping, and is asked once more then."""
    resume_seconds: float = 30.0
    """A session whose connection was lost waits so long for another one, if its client asked."""
    replay_bytes: int = 524_288
    """What was sent last of such a session: 100 s of Opus at 32 kbit/s, 10 s of 24 kHz PCM."""
    stall_limit_seconds: float = 15.0
    """A socket that takes nothing for this long while audio waits is closed."""
    drain_seconds: float = 30.0
    """A server that is told to stop lets its sessions finish for so long."""
    drain_resume_seconds: float = 5.0
    """Meanwhile it waits so long for clients that lost their connection."""
    drain_url: str = ""
    """Where it sends its clients; empty: to the address they know, behind which are others."""

    ready_deadline_seconds: float = 5.0
    """Within so long the word of the readiness check must be spoken."""
    ready_cache_seconds: float = 5.0
    """So long its answer is kept."""
    ready_failure_share: float = 0.5
    """A gateway is not ready while more than this share of its pieces fails by its own fault, in
    30 s; 0, or 1 and above: whatever fails."""

    record_dir: str = ""
    """Where every session is recorded, with its text; see docs/recordings.md. Empty: nowhere."""
    record_audio: bool = False
    """With the engine's audio, 96 kB a second."""
    log_format: str = "text"
    """`text` or `json`, one object a line."""
    log_text: bool = False
    """Log lines hold the users' text."""
    traces: bool = False
    """OpenTelemetry spans of sessions, turns and pieces, sent by its own variables."""

    lexicon_file: str = ""
    """JSON object of words and how they are said, in all sessions; those of a session go first."""
    opus_complexity: int = 5
    """CPU that Opus encoders spend, 0 to 10."""
    clause_pause_ms: int = 160
    """Silence after a piece by what ends it, where a session asks for no other; 70 at least."""
    sentence_pause_ms: int = 320
    """The same after a sentence."""
    paragraph_pause_ms: int = 480
    """The same after a paragraph."""

    @classmethod
    def from_env(cls, environment: Mapping[str, str], **overrides: object) -> Settings:
        """Settings from `VOXGATE_*` variables; `overrides` win. Raises `SettingError`."""
        values: dict[str, object] = {}
        for field in fields(cls):
            name = PREFIX + field.name.upper()
            if name not in environment:
                continue
            kind = KINDS[str(field.type)]
            try:
                values[field.name] = kind.read(environment[name])
            except ValueError:
                raise SettingError(f"{name}={environment[name]!r} is not {kind.words}.") from None
        return cls(**{**values, **overrides})  # type: ignore[arg-type]

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, float) and math.isnan(value):
                raise SettingError(f"{field.name} is {value}, which is not a number.")
            if isinstance(value, int | float) and value < 0:
                raise SettingError(f"{field.name} is {value}; it cannot be negative.")
        if self.port > 65535:
            raise SettingError(
                f"port is {self.port}; ports go up to 65535, and 0 takes a free one."
            )
        if not 0 <= self.opus_complexity <= 10:
            raise SettingError(f"opus_complexity is {self.opus_complexity}; Opus has 0 to 10.")
        for kind in ("clause", "sentence", "paragraph"):
            value = getattr(self, f"{kind}_pause_ms")
            if value > 2000:
                raise SettingError(f"{kind}_pause_ms is {value}; a pause has at most 2000.")
        for name in ("chars_per_second", "messages_per_second"):
            if not getattr(self, name):
                raise SettingError(f"{name} is 0; nothing could be sent.")
        if self.pieces_ahead < 1:
            raise SettingError("pieces_ahead is 0; at least one piece has to be made at a time.")
