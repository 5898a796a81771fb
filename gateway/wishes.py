"""How a session wants to be spoken to: what is in force, and the turns made by it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gateway.loudness import Leveller
from gateway.offer import Offer
from gateway.piece import Voicing
from gateway.protocol import (
    Notice,
    ServerMessage,
    SessionStart,
    SessionStarted,
    SessionUpdate,
    SessionUpdated,
    TurnStart,
)
from gateway.settings import Settings
from gateway.spoken import SpokenSettings
from gateway.turn import Turn


class Wishes:
    """Wishes of one session, as far as its server's offer goes. `begin` comes first."""

    def __init__(self, offer: Offer) -> None:
        self._offer = offer
        self._start = SessionStart()
        self._spoken = SpokenSettings()
        self.voicing = Voicing("default", "auto", 1.0, None)
        """In force for turns that begin now."""

    def begin(
        self, start: SessionStart, name: str, settings: Settings
    ) -> tuple[SessionStarted, list[Notice]]:
        """Take the wishes of `session.start`; what to answer. Raises `ProtocolError`."""
        offer = self._offer
        voicing = offer.voicing(start.voice, start.language, start.speed, start.seed)
        spoken, no_tags = offer.spoken(start)
        encoder = offer.encoder(start)
        style, no_style = offer.style(start.style or "", start.type)
        self._start, self._spoken = start, spoken
        self.voicing = replace(voicing, style=style)
        answer = offer.started(name, start, self.voicing, encoder, settings)
        return answer, [notice for notice in (no_tags, no_style) if notice is not None]

    def change(self, update: SessionUpdate) -> list[Notice]:
        """Take those of `session.update`; what to tell. Raises `ProtocolError`."""
        current = self.voicing
        voicing = self._offer.voicing(
            current.voice if update.voice is None else update.voice,
            current.language if update.language is None else update.language,
            current.speed if update.speed is None else update.speed,
            current.seed if update.seed is None else update.seed,
        )
        style, notices = self._style(update)
        self.voicing = replace(voicing, style=style)
        return notices

    def updated(self, turn: int | None) -> ServerMessage:
        """What is in force, `turn` included if it goes on like this."""
        voicing = self.voicing
        return SessionUpdated(
            turn=turn,
            voice=voicing.voice,
            language=voicing.language,
            speed=voicing.speed,
            style=" ".join(voicing.style),
            seed=voicing.seed,
        )

    def turn(self, number: int, keys: Callable[[], int], leveller: Leveller) -> Turn:
        """A new turn as things are now."""
        return Turn(
            number,
            self.voicing,
            text=self._offer.make_text(replace(self._spoken, language=self.voicing.language)),
            encoder=self._offer.encoder(self._start),
            keys=keys,
            captions=self._start.captions,
            early_words=self._start.early_words,
            pauses=self._offer.pauses_of(self._start),
            leveller=leveller,
            make_guard=self._offer.make_guard,
        )

    def restyle(self, turn: Turn, message: TurnStart) -> list[Notice]:
        """The style of one turn; what to tell."""
        style, notices = self._style(message)
        turn.voicing = replace(turn.voicing, style=style)
        return notices

    def _style(self, message: SessionUpdate | TurnStart) -> tuple[tuple[str, ...], list[Notice]]:
        if message.style is None:
            return self.voicing.style, []
        style, notice = self._offer.style(message.style, message.type)
        return style, [] if notice is None else [notice]
