"""The one door into the engine: text of one piece in, audio chunks out.

text -> checkpoint.plan (prompt ids) -> language model on vLLM (frames) -> codec (PCM).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from engine.align.heard import HeardWords
from engine.api import (
    AudioChunk,
    EngineLimits,
    EngineStats,
    Progress,
    SpeechError,
    SpeechRequest,
    Voice,
    describe,
)
from engine.checkpoints import load_checkpoint
from engine.checkpoints.base import (
    Checkpoint,
    CheckpointError,
    CodeSampling,
    Frames,
    GrowingCheckpoint,
    PiecePlan,
    PromptContext,
    RefiningCheckpoint,
)
from engine.chunking import ChunkPolicy, Listener
from engine.codec.service import DRY, DecodeService
from engine.halves import middle, moved
from engine.language_model import FrameBatch, LanguageModel
from engine.machine import language_model_settings, resolve_device
from engine.settings import EngineSettings

_LOOK_SECONDS = 1.0
_SHORT_CHARS = 80
"""Text that is read in 2 or 3 ms; one of 100 Han characters and digits takes 50."""
_DIGIT_CHARS = 8
"""Digits are read by rules, which take longer."""
_T = TypeVar("_T")
_TOUCH_SECONDS = 20.0
_TOUCH_ABOVE_KV_USAGE = 0.5


class EngineSynthesizer:
    """`engine.api.Synthesizer` on one vLLM engine and one decode service."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._device = resolve_device(settings.device)
        self._checkpoint: Checkpoint = load_checkpoint(settings)
        self._lm = LanguageModel(
            language_model_settings(settings, self._device, self._checkpoint.model_dir())
        )
        self._decoder: DecodeService | None = None
        self._policy = ChunkPolicy()
        self._state = "stopped"
        self._frames = 0
        self._live = 0
        self._ids = itertools.count()
        self._touching: asyncio.Task[None] | None = None
        self._reader = ThreadPoolExecutor(1, "text")
        self._reading = 0
        self._rereading = asyncio.Lock()

    # -- life ------------------------------------------------------------------------------------

    async def start(self, progress: Progress | None = None) -> None:
        report = progress or (lambda _what, _share: None)
        self._state = "starting"
        report("loading the codec", 0.05)
        codec = await asyncio.to_thread(self._checkpoint.codec)
        self._decoder = DecodeService(
            codec.to(self._device),
            threads=self._settings.decode_threads,
            look_ahead_frames=self._settings.look_ahead_frames,
        )
        self._decoder.start()
        if not codec.config.causal:
            # Nothing can be heard before the frames ahead are there.
            ahead = self._settings.look_ahead_frames
            self._policy = replace(self._policy, first=self._policy.first + ahead)
        report("starting vLLM", 0.1)
        await self._lm.start()
        report("warming the voices", 0.8)
        self._checkpoint.register(self._lm)
        await self._touch_voices()
        report("speaking once", 0.9)
        await self._speak_once()
        self._touching = asyncio.create_task(self._keep_voices_cached())
        self._state = "ready"
        report("ready", 1.0)

    async def close(self) -> None:
        self._state = "stopped"
        if self._touching is not None:
            self._touching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._touching
            self._touching = None
        await self._lm.close()
        if self._decoder is not None:
            await self._decoder.close()
            self._decoder = None
        self._reader.shutdown(wait=False)

    async def _speak_once(self) -> None:
        for voice in self._checkpoint.voices()[:1]:
            for text, language in (("Hello there, hello.", "en"), ("你好，你好。", "zh")):
                if voice.languages and language not in voice.languages:
                    continue
                async for _ in self.speak(SpeechRequest(text=text, voice=voice.id, seed=0)):
                    pass

    async def _touch_voices(self) -> None:
        for prompt in self._checkpoint.warm_prompts():
            touch = CodeSampling(
                temperature=1.0,
                top_p=1.0,
                top_k=1,
                repetition_penalty=1.0,
                repetition_window=1,
                min_frames=0,
                max_frames=1,
                seed=0,
            )
            async for _ in self._lm.generate(prompt, touch, request_id=self._request_id("touch")):
                pass

    async def _keep_voices_cached(self) -> None:
        """Keep the voices' blocks recently used, so that a busy cache evicts others first, and
        bring them back into the empty cache of an engine that was restarted."""
        restarts, touched_at = 0, time.monotonic()
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            stats, now = self._lm.stats(), time.monotonic()
            restarted = stats.state == "ready" and stats.restarts != restarts
            busy = stats.kv_cache_usage > _TOUCH_ABOVE_KV_USAGE
            if restarted or (busy and now - touched_at > _TOUCH_SECONDS):
                with contextlib.suppress(SpeechError):
                    await self._touch_voices()
                    restarts, touched_at = stats.restarts, now

    # -- what there is ---------------------------------------------------------------------------

    def voices(self) -> Sequence[Voice]:
        return self._checkpoint.voices()

    def voice_files(self) -> Sequence[Path]:
        checkpoint = self._checkpoint
        return checkpoint.voice_files() if isinstance(checkpoint, GrowingCheckpoint) else ()

    async def reload_voices(self) -> None:
        """See `engine.api.Synthesizer.reload_voices`."""
        if not isinstance(self._checkpoint, GrowingCheckpoint):
            return
        if self._state != "ready":
            raise ValueError("The engine has not started yet; ask again when it is ready.")
        async with self._rereading:
            try:
                # A recording takes as long to be read as some seconds of speech to be made.
                put_in_force = await asyncio.to_thread(self._checkpoint.read_voices)
                put_in_force()
            except (CheckpointError, SpeechError) as error:
                raise ValueError(str(error)) from error
        with contextlib.suppress(SpeechError):
            await self._touch_voices()

    @property
    def limits(self) -> EngineLimits:
        return self._checkpoint.limits(self._lm.max_num_seqs)

    def stats(self) -> EngineStats:
        lm = self._lm.stats()
        state = lm.state if self._state == "ready" else self._state
        seconds = self._decoder.seconds if self._decoder is not None else 0.0
        return replace(
            lm,
            state=state,
            frames=self._frames,
            decoding=self._live,
            decode_seconds=seconds,
        )

    # -- speech ----------------------------------------------------------------------------------

    async def speak(self, request: SpeechRequest) -> AsyncGenerator[AudioChunk, None]:
        """Yield the piece's audio as it is made; see `engine.api.Synthesizer.speak`."""
        if self._decoder is None or self._state == "stopped":
            raise SpeechError("engine_stopped", "The speech engine is not running.", retryable=True)
        self._decoder.expect()
        try:
            plan = await self._plan(request)
        except SpeechError as failure:
            half = middle(request.text) if failure.code == "text_too_long" else None
            if half is None or len(request.text) > self.limits.max_text_chars:
                raise
            async with contextlib.aclosing(self._speak_parts(request, half)) as parts:
                async for chunk in parts:
                    yield chunk
            return
        decoder, state = self._decoder, self._decoder.open()
        generation = self._lm.generate(
            plan.prompt,
            plan.sampling,
            priority=request.priority,
            request_id=self._request_id("piece"),
        )
        self._live += 1
        gathered: list[Frames] = [] if plan.lead is None else [plan.lead]
        waiting, decoded = sum(map(len, gathered)), 0
        ids: list[int] = []
        listener = Listener()
        words = HeardWords(self._checkpoint, request, plan)
        try:
            async for batch in generation:
                ids += batch.ids
                gathered.append(self._frames_of(batch))
                waiting += len(batch.ids)
                self._frames += len(batch.ids)
                if batch.finish is not None:
                    break
                lead = listener.lead(time.monotonic())
                if waiting < self._policy.wanted(decoded, listener.heard, lead):
                    continue
                frames = _join(gathered)
                pcm = await decoder.decode(state, frames, last=False, due=_due(listener))
                decoded += waiting
                gathered, waiting = [], 0
                if pcm.size:
                    listener.hand_out(pcm, time.monotonic())
                    yield AudioChunk(pcm, words=words.told())
                words.hear(frames)
            frames = _join(gathered)
            pcm = await decoder.decode(state, frames, last=True, due=_due(listener))
            words.hear(frames, last=True)
            yield AudioChunk(
                pcm,
                final=True,
                words=words.told(),
                context=PromptContext(plan.voice, plan.continuation + tuple(ids)),
                prompt_tokens=batch.prompt_tokens,
                cached_tokens=batch.cached_tokens,
                truncated=batch.finish == "length",
            )
        finally:
            self._live -= 1
            decoder.drop(state)
            await generation.aclose()

    def _frames_of(self, batch: FrameBatch) -> Frames:
        if self._checkpoint.decode_from == "codes":
            return batch.codes
        if batch.hidden is None:
            raise RuntimeError("the checkpoint decodes hidden states but the engine keeps none")
        return batch.hidden

    async def _speak_parts(
        self, request: SpeechRequest, half: int
    ) -> AsyncGenerator[AudioChunk, None]:
        """A text that takes too long to say, in two parts one after the other."""
        context, samples, prompt, cached, truncated = request.context, 0, 0, 0, False
        for start, end in ((0, half), (half, len(request.text))):
            part = replace(request, text=request.text[start:end], context=context)
            before = samples
            async with contextlib.aclosing(self.speak(part)) as stream:
                async for chunk in stream:
                    samples += chunk.pcm.size
                    prompt += chunk.prompt_tokens
                    cached += chunk.cached_tokens
                    truncated = truncated or chunk.truncated
                    context = chunk.context or context
                    final = chunk.final and end == len(request.text)
                    yield AudioChunk(
                        chunk.pcm,
                        final=final,
                        context=context if final else None,
                        prompt_tokens=prompt if final else 0,
                        cached_tokens=cached if final else 0,
                        truncated=truncated and final,
                        words=moved(chunk.words, start, before),
                    )

    async def _plan(self, request: SpeechRequest) -> PiecePlan:
        context = request.context
        if context is not None and not isinstance(context, PromptContext):
            raise SpeechError(
                "context_expired",
                f"{describe(context)} is not a context this engine made; send none.",
            )
        if context is not None and not self._lm.alive(context.tokens):
            request = replace(request, context=None)
        checkpoint = self._checkpoint
        if isinstance(checkpoint, RefiningCheckpoint):
            first = await self._read(request, partial(checkpoint.refine, request))
            if first is not None:
                refined = await self._lm.generate_text(
                    first.prompt,
                    first.sampling,
                    priority=request.priority,
                    request_id=self._request_id("refine"),
                )
                return await self._read(request, partial(checkpoint.plan, request, refined))
        return await self._read(request, partial(checkpoint.plan, request))

    async def _read(self, request: SpeechRequest, work: Callable[[], _T]) -> _T:
        """Do work whose time grows with the text; that of a long one keeps no listener waiting.

        One at a time, so that nothing a checkpoint remembers is written from two threads.
        """
        digits = sum(map(str.isdigit, request.text))
        if not self._reading and len(request.text) + _DIGIT_CHARS * digits <= _SHORT_CHARS:
            return work()
        self._reading += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._reader, work)
        finally:
            self._reading -= 1

    def _request_id(self, kind: str) -> str:
        return f"{kind}-{os.getpid()}-{next(self._ids)}"


def _due(listener: Listener) -> float:
    return DRY if listener.dry_at is None else listener.dry_at


def _join(gathered: list[Frames]) -> Frames:
    return gathered[0] if len(gathered) == 1 else np.concatenate(gathered)


def create(settings: EngineSettings | None = None) -> EngineSynthesizer:
    """An engine that is not started yet. Raises `CheckpointError` when it cannot be."""
    return EngineSynthesizer(settings or EngineSettings())
