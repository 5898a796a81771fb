"""The language model as a service: prompts of token ids in, batches of frames out.

Owns one vLLM engine process and the frame store they share. When the process dies, every pending
generation fails at once and a new process is started in the background on the same store, so that
registered voices stay valid and serials go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from engine import vllm_engine
from engine.api import EngineStats, SpeechError
from engine.batch import EXTRA_ARGS_KEY, RequestParams
from engine.checkpoints.base import Codes, CodeSampling
from engine.counters import Counters
from engine.frames import FRAME_BASE, FrameStore, StoreShape
from engine.lm_config import LmConfig
from engine.vllm_engine import LanguageModelSettings

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM

__all__ = ["FrameBatch", "LanguageModel", "LanguageModelSettings"]

_log = logging.getLogger(__name__)

_BACK_OFF = (0.0, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds before each attempt to start a new engine process; the last one repeats."""

_PROMPT_FRAMES = 6
"""Frames at the start of a generation that come one a message: the first sound is among them."""


@dataclass(frozen=True, slots=True)
class FrameBatch:
    """Consecutive frames of one generation.

    `ids` are their handles, `codes` (n, codebooks), `hidden` (n, hidden) where the checkpoint keeps
    it. `finish` is set on the last batch, which may hold no frames: `end` if the model ended the
    piece, `length` if it reached the frame limit.
    """

    ids: list[int]
    codes: Codes
    hidden: npt.NDArray[np.floating[Any]] | None
    finish: Literal["end", "length"] | None
    prompt_tokens: int
    cached_tokens: int


class LanguageModel:
    """One vLLM engine behind frame handles. All methods belong to one event loop.

    Satisfies `engine.checkpoints.base.Registrar`; registering is possible before `start`.
    """

    def __init__(self, settings: LanguageModelSettings) -> None:
        """Raises `OSError` or `CheckpointError` when the directory or shared memory will not do."""
        self._settings = settings
        hf_config = json.loads((settings.model_dir / "config.json").read_text())
        self._config = LmConfig.from_dict(hf_config["voxgate"], vocab_size=hf_config["vocab_size"])
        self.block_size = settings.kv_block
        self.max_num_seqs = settings.max_num_seqs
        self._store = FrameStore.create(
            StoreShape(
                rows=settings.ring_rows,
                codebooks=self._config.codebooks,
                hidden_size=hf_config["hidden_size"],
                hidden_rows=settings.hidden_rows if self._config.keep_hidden else 0,
                hidden_bytes=4 if settings.dtype == "float32" else 2,
            )
        )
        self._state: Literal["starting", "ready", "restarting", "stopped"] = "stopped"
        self._closed = False
        self._llm: AsyncLLM | None = None
        self._sentinels: list[int] = []
        self._launching: asyncio.Task[None] | None = None
        self._restarts = 0
        self._counters = Counters()
        self._names = itertools.count()

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the engine process; takes some seconds, off the event loop.

        Raises what vLLM raises, and `SpeechError("engine_stopped")` if closed meanwhile.
        """
        self._state = "starting"
        self._launching = asyncio.create_task(self._launch())
        try:
            await self._launching
        except asyncio.CancelledError:
            if self._closed:
                raise self._gone() from None
            raise
        finally:
            if not self._llm:
                self._state = "stopped"

    async def close(self) -> None:
        """Stop the engine process and free the shared memory; pending generations fail."""
        if self._closed:
            return
        self._closed = True
        self._state = "stopped"
        if self._launching is not None:
            self._launching.cancel()
            await asyncio.wait([self._launching])
        await self._discard()
        self._store.close()

    async def _launch(self) -> None:
        starting = asyncio.ensure_future(
            asyncio.to_thread(
                vllm_engine.start,
                self._settings,
                self._config,
                self._store,
                self._counters.logger,
                self._take,
            )
        )
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            # The thread cannot be interrupted; what it starts must not outlive us.
            await asyncio.wait([starting])
            await self._discard()
            raise
        assert self._llm is not None
        self._counters.gauges_to_zero()
        loop = asyncio.get_running_loop()
        self._sentinels = vllm_engine.sentinels(self._llm)
        for sentinel in self._sentinels:
            loop.add_reader(sentinel, self._on_death)
        self._state = "ready"

    def _take(self, llm: AsyncLLM) -> None:
        self._llm = llm

    def _on_death(self) -> None:
        """The engine process ended by itself."""
        _log.error("the engine process died; starting another")
        self._forget_sentinels()
        self._state = "restarting"
        self._fail_pending()
        self._launching = asyncio.get_running_loop().create_task(self._relaunch())

    async def _relaunch(self) -> None:
        for attempt in itertools.count():
            await self._discard()
            await asyncio.sleep(_BACK_OFF[min(attempt, len(_BACK_OFF) - 1)])
            try:
                await self._launch()
            except Exception:
                _log.exception("the engine process did not start (attempt %d)", attempt + 1)
                continue
            self._restarts += 1
            return

    async def _discard(self) -> None:
        """Stop the current engine process, if there is one."""
        self._forget_sentinels()
        self._fail_pending()
        llm, self._llm = self._llm, None
        if llm is not None:
            if llm.output_handler is not None:
                # Or it would report the end of the engine process as an error.
                llm.output_handler.cancel()
            await asyncio.to_thread(vllm_engine.stop, llm)

    def _forget_sentinels(self) -> None:
        loop = asyncio.get_running_loop()
        for sentinel in self._sentinels:
            loop.remove_reader(sentinel)
        self._sentinels = []

    def _fail_pending(self) -> None:
        if self._llm is not None:
            from vllm.v1.engine.exceptions import EngineDeadError

            self._llm.output_processor.propagate_error(EngineDeadError())

    # -- registering -----------------------------------------------------------------------------

    def register_frames(self, codes: Codes) -> list[int]:
        """See `FrameStore.register_frames`."""
        return self._store.register_frames(codes)

    def register_speaker(self, vector: npt.NDArray[np.float32]) -> int:
        """See `FrameStore.register_speaker`."""
        return self._store.register_speaker(vector)

    def alive(self, ids: Sequence[int]) -> bool:
        """Whether every generated frame among `ids` will last for another piece."""
        return self._store.oldest(ids)[1] <= self._store.shape.rows // 2

    def stats(self) -> EngineStats:
        """The engine as of its last step; `frames` counts those delivered to callers."""
        return self._counters.snapshot(self._state, self._restarts)

    # -- generating ------------------------------------------------------------------------------

    async def generate(
        self,
        prompt: Sequence[int],
        sampling: CodeSampling,
        *,
        priority: int = 0,
        request_id: str | None = None,
    ) -> AsyncGenerator[FrameBatch, None]:
        """Yield frames as they are made; `aclose` cancels, the slot is free within one step.

        Raises `SpeechError`: `text_too_long` (prompt), `context_expired` (prompt names overwritten
        frames), `frame_ring_overrun`, `engine_restarting` (retryable), `engine_stopped`.
        """
        outputs = self._run(prompt, sampling, priority, request_id)
        try:
            async for output in outputs:
                completion = output.outputs[0]
                ids = [token for token in completion.token_ids if token >= FRAME_BASE]
                codes, hidden = self._store.read(ids)
                self._counters.frames += len(ids)
                finish: Literal["end", "length"] | None = None
                if output.finished:
                    finish = "end" if completion.finish_reason == "stop" else "length"
                yield FrameBatch(
                    ids=ids,
                    codes=codes,
                    hidden=hidden,
                    finish=finish,
                    prompt_tokens=len(prompt),
                    cached_tokens=output.num_cached_tokens or 0,
                )
        finally:
            await outputs.aclose()

    async def generate_text(
        self,
        prompt: Sequence[int],
        sampling: CodeSampling,
        *,
        priority: int = 0,
        request_id: str | None = None,
    ) -> list[int]:
        """Text ids drawn in mode `text`, without the end; raises as `generate` does."""
        ids: list[int] = []
        outputs = self._run(prompt, sampling, priority, request_id)
        async with contextlib.aclosing(outputs):
            async for output in outputs:
                ids += output.outputs[0].token_ids
        return [token for token in ids if token < self._config.text_vocab != token]

    async def _run(
        self,
        prompt: Sequence[int],
        sampling: CodeSampling,
        priority: int,
        request_id: str | None,
    ) -> AsyncGenerator[Any, None]:
        from vllm import SamplingParams
        from vllm.inputs.engine import tokens_input
        from vllm.sampling_params import RequestOutputKind
        from vllm.v1.engine.exceptions import EngineDeadError

        llm = self._engine()
        room = self._settings.max_model_len - len(prompt)
        if room < 1:
            raise SpeechError(
                "text_too_long",
                f"prompt of {len(prompt)} positions, the engine has {self._settings.max_model_len}",
            )
        oldest, age = self._store.oldest(prompt)
        if age > self._store.shape.rows:
            raise SpeechError("context_expired", "the context's frames were overwritten")
        params = SamplingParams(
            temperature=1.0,
            max_tokens=min(sampling.max_frames, room),
            stop_token_ids=[self._config.end_id, self._config.overrun_id],
            ignore_eos=True,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
            extra_args={EXTRA_ARGS_KEY: list(RequestParams.of(sampling, oldest))},
        )
        request_id = request_id or f"request-{next(self._names)}"
        stream = llm.generate(
            tokens_input(list(prompt), cache_salt=f"frames-{self._store.epoch}"),
            params,
            request_id,
            priority=priority,
        )
        frames = 0
        try:
            async for output in stream:
                if output.finished:
                    self._check_finish(output.outputs[0])
                elif frames < _PROMPT_FRAMES:
                    frames += len(output.outputs[0].token_ids)
                    early = frames < _PROMPT_FRAMES
                    interval = 1 if early else self._settings.stream_interval
                    _set_stream_interval(llm, request_id, interval)
                yield output
        except EngineDeadError:
            raise self._gone() from None
        finally:
            await stream.aclose()

    def _check_finish(self, completion: Any) -> None:
        if completion.stop_reason == self._config.overrun_id:
            raise SpeechError(
                "frame_ring_overrun", "the ring of frames wrapped under this generation"
            )
        if completion.finish_reason not in ("stop", "length"):
            raise self._gone()

    def _engine(self) -> AsyncLLM:
        if self._state != "ready" or self._llm is None or self._llm.errored:
            raise self._gone()
        return self._llm

    def _gone(self) -> SpeechError:
        if self._state == "stopped":
            return SpeechError("engine_stopped", "the speech engine is not running")
        return SpeechError(
            "engine_restarting", "the speech engine is restarting; try again soon", retryable=True
        )


def _set_stream_interval(llm: AsyncLLM, request_id: str, interval: int) -> None:
    """Frames a message of one running request; vLLM has one number for all."""
    outputs = llm.output_processor
    for internal in outputs.external_req_ids.get(request_id, ()):
        outputs.request_states[internal].stream_interval = interval
