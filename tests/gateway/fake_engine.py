"""A scripted synthesizer: sine audio, delays and errors on demand, a record of all that happened.

The pitch of a piece tells pieces apart: 200 Hz + 10 Hz for each request before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from engine.api import (
    SAMPLE_RATE,
    AudioChunk,
    EngineLimits,
    EngineStats,
    Pcm,
    Progress,
    SpeechError,
    SpeechRequest,
    Voice,
)
from gateway.http.health import PROBE_TEXT

LIMITS = EngineLimits(max_text_chars=300, max_streams=64, min_speed=0.5, max_speed=2.0)
VOICES = (
    Voice("ann", "Ann", ("en",)),
    Voice("bao", "Bao", ("zh", "en")),
)


def tone(samples: int, hertz: float = 220.0) -> Pcm:
    """A sine whose first and last samples are audible."""
    time = np.arange(samples) / SAMPLE_RATE
    return (0.3 * np.cos(2 * np.pi * hertz * time)).astype(np.float32)


def sweep(samples: int) -> Pcm:
    """A voice-like band, 200 to 1200 Hz, that is like itself at one place only."""
    hertz = 700 + 500 * np.sin(2 * np.pi * 3 * np.arange(samples) / SAMPLE_RATE)
    return (0.3 * np.cos(2 * np.pi * np.cumsum(hertz) / SAMPLE_RATE)).astype(np.float32)


def lag(audio: Pcm, reference: Pcm, most: int = 40) -> tuple[int, float]:
    """By how many samples `audio` comes late, and how well it matches then (correlation)."""
    shifts = range(-most, most + 1)
    matches = [float(np.corrcoef(np.roll(audio, -s), reference)[0, 1]) for s in shifts]
    best = int(np.argmax(matches))
    return shifts[best], matches[best]


@dataclass(slots=True)
class Script:
    """How one request goes: chunks of `chunk` samples, `delay` seconds before each.

    `fail_after`: raise `error` after that many chunks. `hold`: wait for this event before audio.
    """

    samples: int = 4800
    chunk: int = 1200
    delay: float = 0.0
    fail_after: int | None = None
    error: Exception = field(default_factory=lambda: SpeechError("runaway", "No end was found."))
    hold: asyncio.Event | None = None
    final: bool = True
    silence: tuple[int, int] = (0, 0)
    """Samples of silence before and after the tone."""


class FakeSynthesizer:
    """`engine.api.Synthesizer` without an engine. `script` decides by request and attempt."""

    def __init__(self, script: Callable[[SpeechRequest, int], Script] | None = None) -> None:
        self.script = script or (lambda _request, _number: Script())
        self.requests: list[SpeechRequest] = []
        self.closed: list[int] = []
        """Numbers of requests whose iterator was closed before its end."""
        self.finished: list[int] = []
        self.probe = Script()
        """How the readiness check's piece goes; it is in none of the lists."""
        self.probes = 0
        self.state = "stopped"
        self.start_error: Exception | None = None
        self.start_hold: asyncio.Event | None = None
        self.running = 0
        self.waiting = 0
        self.listed: Sequence[Voice] = VOICES
        self.files: Sequence[Path] = ()

    async def start(self, progress: Progress | None = None) -> None:
        self.state = "starting"
        if progress is not None:
            progress("loading", 0.5)
        if self.start_hold is not None:
            await self.start_hold.wait()
        if self.start_error is not None:
            self.state = "stopped"
            raise self.start_error
        self.state = "ready"

    async def close(self) -> None:
        self.state = "stopped"

    def voices(self) -> Sequence[Voice]:
        return self.listed

    def voice_files(self) -> Sequence[Path]:
        return self.files

    async def reload_voices(self) -> None:
        """One voice a line of its file."""
        for file in self.files:
            ids = file.read_text(encoding="utf-8").split()
            if not ids:
                raise ValueError(f"{file} names no voice")
            keys = {each: f"{each}#{file.stat().st_mtime_ns}" for each in ids}
            self.listed = [Voice(each, each, ("en",), key=keys[each]) for each in ids]

    @property
    def limits(self) -> EngineLimits:
        return LIMITS

    def stats(self) -> EngineStats:
        return EngineStats(state=self.state, running=self.running, waiting=self.waiting)

    async def speak(self, request: SpeechRequest) -> AsyncGenerator[AudioChunk, None]:
        if request.text == PROBE_TEXT:
            number, script = -1, self.probe
            self.probes += 1
        else:
            number = len(self.requests)
            self.requests.append(request)
            script = self.script(request, number)
        self.running += 1
        over = False
        try:
            if script.hold is not None:
                await script.hold.wait()
            lead, tail = script.silence
            audio = np.concatenate(
                (
                    np.zeros(lead, np.float32),
                    tone(script.samples, 200.0 + 10.0 * number),
                    np.zeros(tail, np.float32),
                )
            )
            for count, at in enumerate(range(0, audio.size, script.chunk)):
                await asyncio.sleep(script.delay)
                if script.fail_after is not None and count >= script.fail_after:
                    over = True
                    raise script.error
                yield AudioChunk(audio[at : at + script.chunk])
            over = True
            if number >= 0:
                self.finished.append(number)
            if script.final:
                yield AudioChunk(
                    np.zeros(0, np.float32),
                    final=True,
                    context=("context", number),
                    prompt_tokens=100,
                    cached_tokens=96,
                )
        finally:
            self.running -= 1
            if not over and number >= 0:
                self.closed.append(number)
