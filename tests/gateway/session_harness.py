"""A session driven by hand: a clock, an engine of commands, and everything that came out, read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from fake_engine import LIMITS, VOICES

from engine.api import AudioChunk, EngineLimits, Pcm, SpeechError, SpeechRequest
from gateway.actions import CancelPiece, Close, Outgoing, Resume, StartPiece
from gateway.cutting import TurnText
from gateway.encoding import PcmEncoder
from gateway.loudness import Leveller
from gateway.offer import Offer
from gateway.protocol import AudioHeader, unpack_audio
from gateway.runaway import GuardMaker
from gateway.session import Session
from gateway.settings import Settings
from gateway.spoken import Lexicon


class CountingObserver:
    """A `session.Observer` that keeps everything."""

    def __init__(self) -> None:
        self.turns: Counter[str] = Counter()
        self.pieces: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.runaways: Counter[tuple[str, str]] = Counter()
        self.started: list[tuple[int, int, int]] = []
        self.first_packets: list[float] = []
        self.first_audibles: list[float] = []
        self.underruns: list[float] = []
        self.close_calls = 0
        self.leads: list[float] = []
        self.tokens = (0, 0)

    def turn_started(self, turn: int) -> None:
        self.turns["started"] += 1

    def turn_over(self, outcome: str, turn: int) -> None:
        self.turns[outcome] += 1

    def first_packet(self, seconds: float) -> None:
        self.first_packets.append(seconds)

    def first_audible(self, seconds: float) -> None:
        self.first_audibles.append(seconds)

    def packet(self, payload_bytes: int, lead: float) -> None:
        self.leads.append(lead)

    def underrun(self, seconds: float) -> None:
        self.underruns.append(seconds)

    def close_call(self) -> None:
        self.close_calls += 1

    def piece_started(self, turn: int, piece: int, attempt: int, text: str) -> None:
        self.started.append((turn, piece, attempt))

    def piece_over(self, outcome: str, turn: int, piece: int) -> None:
        self.pieces[outcome] += 1

    def runaway(self, reason: str, outcome: str) -> None:
        self.runaways[reason, outcome] += 1

    def prompt(self, tokens: int, cached: int) -> None:
        self.tokens = (self.tokens[0] + tokens, self.tokens[1] + cached)

    def error(self, code: str) -> None:
        self.errors[code] += 1


@dataclass
class Packet:
    """An audio message with its PCM."""

    header: AudioHeader
    pcm: Pcm


Out = dict[str, Any] | Packet | Close


def read(item: Outgoing) -> Out:
    """What a client makes of it."""
    if isinstance(item, str):
        message: dict[str, Any] = json.loads(item)
        return message
    if isinstance(item, bytes):
        header, payload = unpack_audio(item)
        return Packet(header, (np.frombuffer(payload, "<i2") / 32767).astype(np.float32))
    return item


class Calm:
    """A runaway guard that lets everything pass."""

    def feed(self, pcm: Pcm) -> None:
        return None


class Unlevelled(Leveller):
    """Leaves every speaker as loud as they are, so that a level tells whose a sample is."""

    def wants(self, speaker: Hashable) -> bool:
        return False

    def feed(self, pcm: Pcm) -> Pcm:
        return pcm


@dataclass
class Harness:
    """Started by default, with PCM so that tests can see which piece a sample belongs to."""

    settings: Settings = field(default_factory=Settings)
    start: dict[str, Any] | None = field(default_factory=dict)
    now: float = 1000.0
    levelled: bool = True
    reads_on: bool = True
    """Whether a long text is read at once."""
    limits: EngineLimits = LIMITS
    lexicon: Lexicon = field(default_factory=lambda: Lexicon({}))
    make_guard: GuardMaker = lambda _text, _speed: Calm()
    """By default none: the tests' audio does not sound like speech."""

    def __post_init__(self) -> None:
        self.observer = CountingObserver()
        offer = Offer(
            voices=VOICES,
            limits=self.limits,
            make_text=TurnText,
            lexicon=self.lexicon,
            make_encoder=lambda start: PcmEncoder(start.frame_ms),
            make_guard=self.make_guard,
        )
        self.session = Session("test", self.settings, offer, self.observer, self.now, token="token")
        if not self.levelled:
            self.session._leveller = Unlevelled()
        self.engine: dict[int, SpeechRequest] = {}
        """Pieces in the engine."""
        self.requests: list[SpeechRequest] = []
        self.keys: list[int] = []
        self.cancelled: list[int] = []
        self.resumes: list[Resume] = []
        self.out: list[Out] = []
        self.wire: list[str | bytes] = []
        """Everything taken, as it goes over the wire."""
        if self.start is not None:
            self.send("session.start", **{"format": "pcm_s16le", **self.start})
            self.take()
            self.out.clear()

    # -- in --------------------------------------------------------------------------------------

    def send(self, type: str, **values: Any) -> None:
        self.raw(json.dumps({"type": type, **values}))

    def raw(self, message: str | bytes) -> None:
        self.session.receive(message, self.now)
        while self.reads_on and self.session.unread:
            self.session.tick(self.now)
        self.settle()

    def wait(self, seconds: float) -> None:
        """Let time pass, with every tick the session asks for."""
        end = self.now + seconds
        while (due := self.session.deadline) is not None and due <= end:
            self.now = max(self.now, due)
            self.session.tick(self.now)
            self.settle()
            assert self.session.deadline is None or self.session.deadline > self.now - 1e-9
        self.now = end

    def audio(self, key: int, samples: int, level: float = 0.5, *, final: bool = False) -> None:
        """Constant audio of a piece: the level tells whose it is."""
        chunk = AudioChunk(
            np.full(samples, level, np.float32),
            final=final,
            context=("context", key) if final else None,
            prompt_tokens=10 if final else 0,
            cached_tokens=8 if final else 0,
        )
        if final:
            self.engine.pop(key, None)
        self.session.audio(key, chunk, self.now)
        self.settle()

    def fail(self, key: int, code: str = "runaway", *, retryable: bool = False) -> None:
        self.engine.pop(key, None)
        self.session.failed(key, SpeechError(code, "It failed.", retryable=retryable), self.now)
        self.settle()

    def speak_all(self, samples: int = 4800) -> None:
        """The engine makes everything it is asked for."""
        while True:
            for key in sorted(self.engine):
                self.audio(key, samples, final=True)
            self.take()
            if not self.engine:
                if self.session.deadline is None:
                    return
                self.wait(self.session.deadline - self.now + 1e-6)

    def settle(self) -> None:
        for command in self.session.commands():
            if isinstance(command, StartPiece):
                assert command.key not in self.engine
                self.engine[command.key] = command.request
                self.requests.append(command.request)
                self.keys.append(command.key)
            elif isinstance(command, Resume):
                self.resumes.append(command)
            else:
                assert isinstance(command, CancelPiece)
                del self.engine[command.key]
                self.cancelled.append(command.key)

    # -- out -------------------------------------------------------------------------------------

    def take(self, most: int = 1_000_000) -> list[Out]:
        """Read what the session sends, at most so many messages."""
        taken: list[Out] = []
        while len(taken) < most:
            item = self.session.take(self.now)
            self.settle()
            if item is None:
                break
            if not isinstance(item, Close):
                self.wire.append(item)
            taken.append(read(item))
            if isinstance(item, Close):
                break
        self.out += taken
        return taken

    def messages(self, type: str | None = None) -> list[dict[str, Any]]:
        """JSON messages so far, of one type or all."""
        found = [item for item in self.out if isinstance(item, dict)]
        return [message for message in found if type in (None, message["type"])]

    def types(self) -> list[str]:
        """What came, runs of audio as one `audio`."""
        names: list[str] = []
        for item in self.out:
            name = item["type"] if isinstance(item, dict) else type(item).__name__
            if name == "Packet":
                name = "audio"
                if names[-1:] == ["audio"]:
                    continue
            names.append(name)
        return names

    def packets(self, turn: int | None = None) -> list[Packet]:
        found = [item for item in self.out if isinstance(item, Packet)]
        return [packet for packet in found if turn in (None, packet.header.turn)]
