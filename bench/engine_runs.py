"""Drives the engine itself, without a gateway: equal batches, and listeners in real time.

Random weights never end a piece, so `min_frames` = `max_frames` gives every request the same
length, as the reference loop gives it.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from bench.player import Player
from engine.api import SAMPLES_PER_FRAME, Sampling, SpeechError, SpeechRequest, Synthesizer
from engine.checkpoints.base import CodeSampling
from engine.language_model import LanguageModel

# ChatTTS' own sampling, as the reference loop is asked to sample too.
CHATTTS = CodeSampling(
    temperature=0.3,
    top_p=0.7,
    top_k=20,
    repetition_penalty=1.05,
    repetition_window=16,
    min_frames=0,
    max_frames=0,
    seed=0,
)


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch of requests that started together."""

    seconds: float
    frames: int
    first_seconds: list[float]
    """Of every request: until its first frame, or its first samples."""

    @property
    def frames_per_second(self) -> float:
        return self.frames / self.seconds


async def generate_frames(
    lm: LanguageModel, streams: int, frames: int, *, prompt: int, text_ids: int, rng: random.Random
) -> Batch:
    """`streams` generations of `frames` frames each, from `prompt` random ids below `text_ids`.

    Raises `RuntimeError` when a generation has another length.
    """

    async def one(ids: list[int], seed: int) -> float:
        sampling = replace(CHATTTS, min_frames=frames, max_frames=frames, seed=seed)
        made, first = 0, 0.0
        async with aclosing(lm.generate(ids, sampling)) as batches:
            async for batch in batches:
                made += len(batch.ids)
                first = first or time.perf_counter() - started
        if made != frames:
            raise RuntimeError(f"asked for {frames} frames, got {made}")
        return first

    prompts = [[rng.randrange(text_ids) for _ in range(prompt)] for _ in range(streams)]
    started = time.perf_counter()
    firsts = await asyncio.gather(*(one(ids, rng.getrandbits(31)) for ids in prompts))
    return Batch(time.perf_counter() - started, streams * frames, list(firsts))


async def speak_together(
    synthesizer: Synthesizer,
    streams: int,
    frames: int,
    *,
    texts: Iterator[str],
    voices: Sequence[str],
) -> Batch:
    """`streams` pieces of `frames` frames each through language model and codec, all at once.

    Raises the first `SpeechError`, and `RuntimeError` when the audio has another length.
    """

    async def one(number: int, text: str) -> float:
        request = SpeechRequest(
            text=text,
            voice=voices[number % len(voices)],
            seed=number,
            sampling=Sampling(min_frames=frames, max_frames=frames),
        )
        samples, first = 0, 0.0
        async with aclosing(synthesizer.speak(request)) as chunks:
            async for chunk in chunks:
                samples += chunk.pcm.size
                if not first and chunk.pcm.size:
                    first = time.perf_counter() - started
        if abs(samples - frames * SAMPLES_PER_FRAME) > 2 * SAMPLES_PER_FRAME:
            raise RuntimeError(f"asked for {frames} frames, got {samples} samples")
        return first

    work = list(zip(range(streams), texts, strict=False))
    started = time.perf_counter()
    firsts = await asyncio.gather(*(one(number, text) for number, text in work))
    return Batch(time.perf_counter() - started, streams * frames, list(firsts))


@dataclass(slots=True)
class Listeners:
    """What a number of listeners met in one window."""

    seconds: float
    first_seconds: list[float] = field(default_factory=list)
    """First samples of every listener's first piece, for which they waited in silence."""
    gaps: list[float] = field(default_factory=list)
    samples: int = 0
    gapless: int = 0
    listeners: int = 0
    errors: dict[str, int] = field(default_factory=dict)


async def listen(
    synthesizer: Synthesizer,
    starts: Sequence[float],
    *,
    seconds: float,
    frames: int,
    texts: Iterator[str],
    voices: Sequence[str],
    hold_lead: float = 1.0,
) -> Listeners:
    """Listeners who start at `starts` and hear piece after piece until `seconds` have passed.

    The next piece is asked for when the listener has less than `hold_lead` seconds in hand, as the
    gateway's pacing does, so that the load is that of real-time playback and not of a race.
    """
    result = Listeners(seconds=seconds, listeners=len(starts))
    began = time.perf_counter()

    async def piece(player: Player, number: int, text: str) -> None:
        request = SpeechRequest(
            text=text,
            voice=voices[number % len(voices)],
            seed=number,
            priority=0 if player.started is None else 1,
            sampling=Sampling(min_frames=frames, max_frames=frames),
        )
        asked = time.perf_counter()
        async with aclosing(synthesizer.speak(request)) as chunks:
            async for chunk in chunks:
                now = time.perf_counter()
                if now - began > seconds:
                    return
                if chunk.pcm.size:
                    if player.started is None:
                        result.first_seconds.append(now - asked)
                    player.push(now, chunk.pcm.size)
                    result.samples += chunk.pcm.size

    async def listener(number: int, start: float) -> None:
        player = Player()
        await asyncio.sleep(start)
        failed = False
        while (now := time.perf_counter()) - began < seconds:
            if (spare := player.lead(now) - hold_lead) > 0 and player.started is not None:
                await asyncio.sleep(min(spare, seconds - (now - began)))
                continue
            try:
                await piece(player, number, next(texts))
            except SpeechError as error:
                failed = True
                result.errors[error.code] = result.errors.get(error.code, 0) + 1
                await asyncio.sleep(0.1)
        player.stop(began + seconds, complete=False)
        result.gaps += player.gaps
        result.gapless += player.gapless and not failed

    await asyncio.gather(*(listener(number, start) for number, start in enumerate(starts)))
    return result
