"""Audio of ElevenLabs' routes with the times of characters."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import orjson

from engine.api import SAMPLE_RATE
from gateway.http.elevenlabs.alignment import Characters, spoken, written
from gateway.http.speech import Part
from gateway.protocol import Caption, TurnDone


class Timed:
    """Audio and the times of characters, as they come to pass.

    The times of a piece are known when the next one begins, so they travel with its first audio;
    until then clients have the sound.
    """

    def __init__(self) -> None:
        self._open: Caption | None = None
        self._audio = bytearray()
        self._known: list[tuple[Characters, Characters]] = []

    def hear(self, part: Part) -> tuple[Characters, Characters] | None:
        """The times that a part makes known: of the text as written, and as said."""
        if not isinstance(part, Caption | TurnDone):
            return None
        ended, self._open = self._open, None
        if isinstance(part, Caption):
            until = part.start_sample or 0
            if part.final:
                self._open = part
        else:
            until = part.samples
        if ended is None:
            return None
        until = max(until, ended.end_sample or 0)
        return written(ended, until), spoken(ended, until)

    def line(self, part: Part) -> bytes:
        """A line of a stream, or nothing."""
        known = self.hear(part)
        if known is not None:
            self._known.append(known)
        if isinstance(part, bytes) or (isinstance(part, TurnDone) and self._known):
            audio = part if isinstance(part, bytes) else b""
            known_now, self._known = self._known, []
            return _timed_json(audio, known_now) + b"\n"
        return b""

    def whole(self, part: Part) -> bytes:
        """The one JSON object, with the last part."""
        known = self.hear(part)
        if known is not None:
            self._known.append(known)
        if isinstance(part, bytes):
            self._audio += part
        return _timed_json(bytes(self._audio), self._known) if isinstance(part, TurnDone) else b""


def _timed_json(audio: bytes, known: Sequence[tuple[Characters, Characters]]) -> bytes:
    return orjson.dumps(
        {
            "audio_base64": base64.b64encode(audio).decode(),
            "alignment": _seconds([times for times, _ in known]),
            "normalized_alignment": _seconds([times for _, times in known]),
        }
    )


def _seconds(pieces: Sequence[Characters]) -> dict[str, Any] | None:
    if not pieces:
        return None
    return {
        "characters": [each for piece in pieces for each in piece.characters],
        "character_start_times_seconds": [
            round(at / SAMPLE_RATE, 3) for piece in pieces for at in piece.starts
        ],
        "character_end_times_seconds": [
            round(at / SAMPLE_RATE, 3) for piece in pieces for at in piece.ends
        ],
    }
