"""What a server offers to sessions: voices, languages, formats, limits; and whether a client's
wishes fit it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

from engine.api import EngineLimits, Language, Voice
from gateway import protocol
from gateway.cutting import TurnText
from gateway.encoding import Encoder
from gateway.formats import is_opus, opus_complexity, sample_rate
from gateway.pauses import PAUSES, SETTABLE, Pauses, milliseconds, with_milliseconds
from gateway.piece import Voicing
from gateway.protocol import Notice, ProtocolError, SessionStart, SessionStarted
from gateway.runaway import GuardMaker, RunawayGuard
from gateway.settings import Settings
from gateway.spoken import Lexicon, LexiconError, SpokenSettings

LANGUAGES = ("auto", "en", "zh")


@dataclass(frozen=True, slots=True)
class Offer:
    """Fixed while a session lives."""

    voices: Sequence[Voice]
    limits: EngineLimits
    make_text: Callable[[SpokenSettings], TurnText]
    make_encoder: Callable[[SessionStart], Encoder]
    pauses: Pauses = field(default_factory=lambda: PAUSES)
    """Of sessions that ask for no others."""
    make_guard: GuardMaker = RunawayGuard
    lexicon: Lexicon = field(default_factory=lambda: Lexicon({}))
    """How words are said, in every session."""

    def voicing(self, voice: str, language: str, speed: float, seed: int | None) -> Voicing:
        """How to speak, in no style. Raises `ProtocolError` for what this server does not have."""
        voices = [known.id for known in self.voices]
        if voice not in voices and voice != "default":
            raise ProtocolError("unknown_voice", field="voice", available=voices)
        if language not in LANGUAGES:
            raise ProtocolError("unsupported_language", field="language", available=list(LANGUAGES))
        least, most = self.limits.min_speed, self.limits.max_speed
        if not least <= speed <= most:
            raise ProtocolError(
                "bad_speed", f"The speed has to lie between {least} and {most}.", field="speed"
            )
        return Voicing(voice, cast(Language, language), speed, seed)

    def style(self, wish: str, request: str) -> tuple[tuple[str, ...], Notice | None]:
        """Those of the styles wished for that there are, and what to tell of the others."""
        names = [name for name in re.split(r"[\s,]+", wish) if name]
        offered = self.limits.styles
        # The last of a kind counts.
        chosen = {name.split("_")[0]: name for name in names if name in offered}
        lacking = [name for name in names if name not in offered]
        notice = None
        if lacking:
            which = ", ".join(f"`{name}`" for name in lacking)
            has = f"It has {', '.join(offered)}." if offered else "It has none."
            notice = Notice(
                code="unsupported",
                message=f"The voices of this server have no style {which}. {has}",
                request=request,
                field="style",
                available=list(offered),
            )
        return tuple(chosen.values()), notice

    def spoken(self, start: SessionStart) -> tuple[SpokenSettings, Notice | None]:
        """What a session has said of its text, and what to tell of wishes that are not granted.
        Raises `ProtocolError` for a lexicon that cannot be used."""
        try:
            lexicon = Lexicon(start.lexicon or {}).over(self.lexicon)
        except LexiconError as invalid:
            raise ProtocolError("bad_field", f"{invalid}.", field="lexicon") from None
        notice = None
        if start.control_tags and not self.limits.styles:
            notice = Notice(
                code="unsupported",
                message="The voices of this server know no control tags; they are left out.",
                request=start.type,
                field="control_tags",
            )
        settings = SpokenSettings(
            code_phrase=start.code_phrase,
            emoji=start.emoji,
            urls=start.urls,
            control_tags=start.control_tags and bool(self.limits.styles),
            lexicon=lexicon,
        )
        return settings, notice

    def encoder(self, start: SessionStart) -> Encoder:
        """A new encoder for one turn. Raises `ProtocolError` for an unknown format or a rate it
        does not have."""
        sample_rate(start)
        return self.make_encoder(start)

    def pauses_of(self, start: SessionStart) -> Pauses:
        """Silence after the pieces of a session."""
        return with_milliseconds(
            self.pauses,
            clause=start.clause_pause_ms,
            sentence=start.sentence_pause_ms,
            paragraph=start.paragraph_pause_ms,
        )

    def started(
        self,
        name: str,
        start: SessionStart,
        voicing: Voicing,
        encoder: Encoder,
        settings: Settings,
    ) -> SessionStarted:
        """The answer to `session.start`: what is in force."""
        audio: dict[str, object] = {
            "format": start.format,
            "sample_rate": sample_rate(start),
            "channels": 1,
            "frame_ms": start.frame_ms,
            "frame_samples": encoder.frame_samples,
            "pre_skip": encoder.pre_skip,
        }
        if is_opus(start.format):
            audio |= {
                "bitrate": start.bitrate,
                "complexity": opus_complexity(start, settings.opus_complexity),
                "fec": start.fec,
                "dtx": start.dtx,
            }
        pauses = self.pauses_of(start)
        audio |= {f"{kind}_pause_ms": milliseconds(pauses[kind]) for kind in SETTABLE}
        return SessionStarted(
            protocol=protocol.PROTOCOL,
            session=name,
            voice=voicing.voice,
            language=voicing.language,
            speed=voicing.speed,
            style=" ".join(voicing.style),
            seed=voicing.seed,
            control_tags=start.control_tags and bool(self.limits.styles),
            captions=start.captions,
            live=start.live,
            interrupt=start.interrupt,
            audio=audio,
            limits={
                "message_bytes": settings.max_message_bytes,
                "append_chars": settings.max_append_chars,
                "backlog_chars": settings.max_backlog_chars,
                "turn_chars": settings.max_turn_chars,
                "chars_per_second": settings.chars_per_second,
                "messages_per_second": settings.messages_per_second,
                "sessions_per_client": settings.max_sessions_per_client,
                "open_turns": settings.max_open_turns,
                "pending_flushes": settings.max_pending_flushes,
                "resume_seconds": settings.resume_seconds,
                "replay_bytes": settings.replay_bytes,
                "audio_buffer_seconds": settings.audio_buffer_seconds,
                "stall_seconds": settings.stall_limit_seconds,
                "ping_interval_seconds": settings.ping_interval_seconds,
                "ping_timeout_seconds": settings.ping_timeout_seconds,
                "min_speed": self.limits.min_speed,
                "max_speed": self.limits.max_speed,
            },
            voices=[voice.id for voice in self.voices],
            styles=list(self.limits.styles),
            unknown=protocol.unknown_fields(start),
        )
