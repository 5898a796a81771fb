"""A recorded session, run again without a network, an engine or a clock of its own.

The engine is scripted by the recording: its audio as it came, or a stand-in that is audible where
it was. The session gets every event at its recorded time, and has to give the same messages.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from engine.api import (
    AUDIBLE,
    AudioChunk,
    EngineLimits,
    EngineStats,
    Pcm,
    Progress,
    SpeechError,
    SpeechRequest,
    Voice,
    WordTime,
)
from gateway.metrics import Metrics
from gateway.offer import Offer
from gateway.protocol import Error, ProtocolError, ServerDraining
from gateway.recording import VERSION, described, sent
from gateway.runaway import Verdict
from gateway.session import Session
from gateway.settings import Settings
from gateway.spoken import Lexicon

_STAND_IN = 30 * AUDIBLE


class RecordingError(ValueError):
    """A recording that cannot be read. The message says where and why."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a replay left its recording: the line, what stands there, what came now."""

    line: int
    recorded: Any
    replayed: Any


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one replay. `messages` and `packets` count what was compared."""

    session: str
    events: int
    messages: int
    packets: int
    seconds: float
    difference: Difference | None


class ScriptedEngine:
    """What a recording says of its engine. Its audio comes from the recording's events."""

    def __init__(self, voices: Sequence[Voice], limits: EngineLimits) -> None:
        self._voices, self._limits = voices, limits

    async def start(self, progress: Progress | None = None) -> None:
        """Nothing to load."""

    async def close(self) -> None:
        """Nothing to stop."""

    def voices(self) -> Sequence[Voice]:
        return self._voices

    def voice_files(self) -> Sequence[Path]:
        return ()

    async def reload_voices(self) -> None:
        """There are no others."""

    @property
    def limits(self) -> EngineLimits:
        return self._limits

    def stats(self) -> EngineStats:
        return EngineStats(state="ready")

    async def speak(self, request: SpeechRequest) -> AsyncGenerator[AudioChunk, None]:
        nothing: Sequence[AudioChunk] = ()
        for chunk in nothing:
            yield chunk
        raise SpeechError("engine_stopped", "A recording speaks only what was spoken.")


OfferOf = Callable[[Settings, ScriptedEngine], Offer]


def recordings(place: Path) -> list[Path]:
    """The recordings at `place`: a file, or a folder of them. Raises `RecordingError`."""
    found = sorted(place.glob("*.jsonl")) if place.is_dir() else [place]
    if not found or not found[0].is_file():
        raise RecordingError(f"No recording (*.jsonl) at {place}.")
    return found


def replay(path: Path, offer_of: OfferOf) -> Outcome:
    """Run the recording at `path` until its end or its first difference.

    `offer_of`: what a server of these settings with this engine offers. Raises `RecordingError`.
    """
    lines = _lines(path)
    try:
        _, head = next(lines)
    except StopIteration:
        raise RecordingError(f"{path} is empty.") from None
    if head.get("recording") != VERSION:
        raise RecordingError(f"{path} is no recording of version {VERSION}.")
    return _Replay(path, head, offer_of).run(lines)


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield number, orjson.loads(line)
            except orjson.JSONDecodeError:
                # A server that was killed leaves half a line at the end.
                if not line.endswith(b"\n"):
                    return
                raise RecordingError(f"{path}, line {number}: not JSON.") from None


class _Replay:
    def __init__(self, path: Path, head: dict[str, Any], offer_of: OfferOf) -> None:
        known = {field.name for field in fields(Settings)}
        kept = {k: v for k, v in head["settings"].items() if k in known}
        # Its words are in the recording; the file may be another by now.
        settings = Settings(**{**kept, "lexicon_file": ""})
        voices = [
            Voice(**{**voice, "languages": tuple(voice["languages"])}) for voice in head["voices"]
        ]
        limits = {**head["limits"], "styles": tuple(head["limits"].get("styles", ()))}
        engine = ScriptedEngine(voices, EngineLimits(**limits))
        refusal = head["refusal"]
        self._name = str(head["session"])
        self._payload = bool(head["payload"])
        self._began = float(head["now"])
        self._verdict: Verdict | None = None
        self._session = Session(
            self._name,
            settings,
            replace(
                offer_of(settings, engine),
                make_guard=lambda _text, _speed: self,
                lexicon=Lexicon(head.get("lexicon", {})),
            ),
            Metrics(),
            self._began,
            token=head["token"],
            refusal=ProtocolError(refusal).error if refusal else None,
        )
        self._audio = self._read_audio(path) if self._payload else None

    def feed(self, pcm: Pcm) -> Verdict | None:
        """The guard of every piece: says what was said when this was recorded."""
        return self._verdict

    def _read_audio(self, path: Path) -> Pcm:
        file = path.with_suffix(".f32")
        if not file.is_file():
            raise RecordingError(f"{path} was made with audio, but {file.name} is missing.")
        return np.fromfile(file, "<f4")

    def run(self, lines: Iterator[tuple[int, dict[str, Any]]]) -> Outcome:
        events = messages = packets = 0
        now, difference = self._began, None
        for number, event in lines:
            events += 1
            now = event["now"] if event["now"] is not None else now
            kind = event["event"]
            if kind in ("take", "commands"):
                recorded = {k: v for k, v in event.items() if k not in ("event", "now")}
                replayed = self._out(kind, now)
                messages += "text" in recorded
                packets += "audio" in recorded
                if orjson.loads(orjson.dumps(replayed)) != recorded:
                    difference = Difference(number, recorded, replayed)
                    break
            else:
                self._in(kind, event, now)
        return Outcome(self._name, events, messages, packets, now - self._began, difference)

    def _out(self, kind: str, now: float) -> dict[str, Any]:
        if kind == "commands":
            return {"commands": [described(command) for command in self._session.commands()]}
        item = self._session.take(now)
        return {} if item is None else sent(item, payload=self._payload)

    def _in(self, kind: str, event: dict[str, Any], now: float) -> None:
        session = self._session
        match kind:
            case "receive":
                raw = event.get("text")
                session.receive(base64.b64decode(event["bytes"]) if raw is None else raw, now)
            case "audio":
                self._verdict = event["verdict"]
                session.audio(event["key"], self._chunk(event), now)
            case "failed":
                error = SpeechError(event["code"], event["message"], retryable=event["retryable"])
                session.failed(event["key"], error, now)
            case "tick":
                session.tick(now)
            case "drain":
                session.drain(now, ServerDraining(**event["notice"]))
            case "admit":
                session.admit(None if event["refusal"] is None else Error(**event["refusal"]))
            case "hurry":
                session.hurry(now)
            case "refuse":
                refusal = ProtocolError(event["code"], **event["details"])
                session.refuse(refusal, event["request"])
            case "resume":
                try:
                    session.resume(event["received"], now)
                except ProtocolError:
                    # Told over the other connection; this session stays as it was.
                    return
            case "abandon":
                session.abandon()
            case _:
                raise RecordingError(f"An event {kind!r} is not known.")

    def _chunk(self, event: dict[str, Any]) -> AudioChunk:
        if self._audio is not None:
            pcm = self._audio[event["start"] : event["start"] + event["samples"]]
        else:
            pcm = np.zeros(event["samples"], dtype=np.float32)
            for first, last in event["audible"]:
                pcm[first : last + 1] = _STAND_IN
        prompt_tokens, cached_tokens = event["tokens"]
        return AudioChunk(
            pcm,
            final=event["final"],
            context=("context", event["key"]) if event["context"] else None,
            prompt_tokens=prompt_tokens,
            cached_tokens=cached_tokens,
            truncated=event["truncated"],
            words=tuple(WordTime(*word) for word in event.get("words", ())),
        )
