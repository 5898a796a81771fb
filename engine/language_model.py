"""The language model as a service: prompts of token ids in, batches of frames out.

Owns one vLLM engine process and the frame store they share, which outlives a process that had to be
replaced, so that registered voices stay valid and serials go on.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from engine.api import EngineStats, SpeechError
from engine.batch import EXTRA_ARGS_KEY, NUMBER_KEY, RequestParams
from engine.cancels import Cancels
from engine.checkpoints.base import Codes, CodeSampling
from engine.counters import Counters
from engine.frames import FRAME_BASE, FrameStore, StoreShape
from engine.lm_config import LmConfig
from engine.supervision import SupervisedEngine
from engine.vllm_engine import LanguageModelSettings

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM

__all__ = ["FrameBatch", "LanguageModel", "LanguageModelSettings"]

_EARLY_FRAMES = 6
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
        self._closed = False
        self._cancels = Cancels(self._store)
        self._counters = Counters(self._cancels)
        self._engine = SupervisedEngine(settings, self._config, self._store, self._counters)
        self._numbers = itertools.count()

    async def start(self) -> None:
        """See `SupervisedEngine.start`."""
        await self._engine.start()

    async def close(self) -> None:
        """Stop the engine process and free the shared memory; pending generations fail."""
        if not self._closed:
            self._closed = True
            await self._engine.close()
            self._cancels.close()
            self._store.close()

    # -- registering -----------------------------------------------------------------------------

    def register_frames(self, codes: Codes) -> list[int]:
        """See `FrameStore.register_frames`."""
        return self._store.register_frames(codes)

    def register_speaker(self, vector: npt.NDArray[np.float32]) -> int:
        """See `FrameStore.register_speaker`."""
        return self._store.register_speaker(vector)

    def replace_speaker(self, token: int, vector: npt.NDArray[np.float32]) -> int:
        """See `FrameStore.replace_speaker`."""
        return self._store.replace_speaker(token, vector)

    def alive(self, ids: Sequence[int]) -> bool:
        """Whether every generated frame among `ids` will last for another piece."""
        return self._store.oldest(ids)[1] <= self._store.shape.rows // 2

    def stats(self) -> EngineStats:
        """The engine as of its last step; `frames` counts those delivered to callers."""
        return self._counters.snapshot(self._engine.state, self._engine.restarts)

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

        llm = self._engine.llm
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
            extra_args={
                EXTRA_ARGS_KEY: list(RequestParams.of(sampling, oldest)),
                NUMBER_KEY: (number := next(self._numbers)),
            },
        )
        request_id = request_id or f"request-{number}"
        stream = llm.generate(
            tokens_input(list(prompt), cache_salt=f"frames-{self._store.epoch}"),
            params,
            request_id,
            priority=priority,
        )
        frames, finished = 0, False
        try:
            async for output in stream:
                if output.finished:
                    finished = True
                    self._check_finish(output.outputs[0])
                elif frames < _EARLY_FRAMES:
                    frames += len(output.outputs[0].token_ids)
                    if frames >= _EARLY_FRAMES and self._settings.stream_interval > 1:
                        _thin_out(llm, request_id, self._settings.stream_interval)
                yield output
        except EngineDeadError:
            finished = True
            raise self._engine.gone() from None
        finally:
            if not finished:
                self._cancels.begin(number, time.monotonic_ns())
            await stream.aclose()

    def _check_finish(self, completion: Any) -> None:
        if completion.stop_reason == self._config.overrun_id:
            raise SpeechError(
                "frame_ring_overrun", "the ring of frames wrapped under this generation"
            )
        if completion.finish_reason not in ("stop", "length"):
            raise self._engine.gone()


def _thin_out(llm: AsyncLLM, request_id: str, interval: int) -> None:
    """From now on `interval` frames a message of one running request; vLLM has one number for all.

    So far every frame went out at once and was not counted; from here on vLLM sends what lies
    behind its count.
    """
    outputs = llm.output_processor
    for internal in outputs.external_req_ids.get(request_id, ()):
        state = outputs.request_states[internal]
        state.sent_tokens_offset = state.detokenizer.num_output_tokens()
        state.stream_interval = interval
