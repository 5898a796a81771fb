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
import os
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from engine.api import EngineStats, SpeechError
from engine.batch import EXTRA_ARGS_KEY, RequestParams
from engine.checkpoints.base import CodeSampling
from engine.frames import FRAME_BASE, PATH_VARIABLE, FrameStore, StoreShape
from engine.lm_config import LmConfig
from engine.quantization import Quantization, vllm_config

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM

_log = logging.getLogger(__name__)

Codes = npt.NDArray[np.int16]
Dtype = Literal["float32", "bfloat16", "float16"]

_BACK_OFF = (0.0, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds before each attempt to start a new engine process; the last one repeats."""

_PROMPT_FRAMES = 6
"""Frames at the start of a generation that come one a message: the first sound is among them."""

_ENVIRONMENT_LOCK = Lock()


@dataclass(frozen=True, slots=True)
class LanguageModelSettings:
    """How to run one checkpoint.

    `model_dir` holds config.json and safetensors. `kv_cache_bytes` defaults to 256 MiB on the CPU,
    where vLLM would otherwise take most of the memory. `compiled` means torch.compile on the CPU
    (needs a C++ compiler) and CUDA graphs on a GPU. `cores` bind the model's threads (CPU only).
    `ring_rows` generated frames are kept, `hidden_ring_rows` of them with their hidden state where
    the checkpoint asks for it: those must be read before that many more frames are generated.
    """

    model_dir: Path
    device: Literal["cpu", "cuda"] = "cpu"
    dtype: Dtype = "bfloat16"
    quantization: Quantization = "none"
    block_size: int | None = None
    max_num_seqs: int = 32
    max_model_len: int = 1024
    max_num_batched_tokens: int | None = None
    kv_cache_bytes: int | None = None
    gpu_memory_utilization: float = 0.6
    compiled: bool = False
    stream_interval: int = 1
    cores: tuple[int, ...] | None = None
    ring_rows: int = 1 << 20
    hidden_ring_rows: int | None = None


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
        self.block_size = settings.block_size or (32 if settings.device == "cpu" else 16)
        self.max_num_seqs = settings.max_num_seqs
        self._store = FrameStore.create(
            StoreShape(
                rows=settings.ring_rows,
                codebooks=self._config.codebooks,
                hidden_size=hf_config["hidden_size"],
                hidden_rows=self._hidden_rows() if self._config.keep_hidden else 0,
                hidden_bytes=4 if settings.dtype == "float32" else 2,
            )
        )
        self._state: Literal["starting", "ready", "restarting", "stopped"] = "stopped"
        self._llm: AsyncLLM | None = None
        self._sentinels: list[int] = []
        self._restart: asyncio.Task[None] | None = None
        self._restarts = 0
        self._counters = _Counters()
        self._names = itertools.count()

    def _hidden_rows(self) -> int:
        settings = self._settings
        usual = 1 << (16 if settings.device == "cpu" else 18)
        return min(settings.hidden_ring_rows or usual, settings.ring_rows)

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the engine process; takes some seconds, off the event loop."""
        self._state = "starting"
        await self._launch()

    async def close(self) -> None:
        """Stop the engine process and free the shared memory; pending generations fail."""
        self._state = "stopped"
        if self._restart is not None:
            self._restart.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._restart
            self._restart = None
        await self._discard()
        self._store.close()

    async def _launch(self) -> None:
        starting = asyncio.ensure_future(asyncio.to_thread(self._build))
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            # The thread cannot be interrupted; what it builds must not outlive us.
            with contextlib.suppress(Exception):
                await starting
            await self._discard()
            raise
        assert self._llm is not None
        self._counters.gauges_to_zero()
        loop = asyncio.get_running_loop()
        manager = self._llm.engine_core.resources.engine_manager
        self._sentinels = [process.sentinel for process in manager.processes]
        for sentinel in self._sentinels:
            loop.add_reader(sentinel, self._on_death)
        self._state = "ready"

    def _build(self) -> None:
        # Not returned: while it starts, vLLM keeps exceptions whose tracebacks hold our frames, and
        # with them whatever we return, for good.
        settings = self._settings
        with _environment(self._environment()):
            from vllm.engine.arg_utils import AsyncEngineArgs
            from vllm.v1.engine.async_llm import AsyncLLM

            on_cpu = settings.device == "cpu"
            options: dict[str, Any] = {
                "model": str(settings.model_dir),
                "skip_tokenizer_init": True,
                "generation_config": "vllm",
                "dtype": settings.dtype,
                "block_size": self.block_size,
                "max_num_seqs": settings.max_num_seqs,
                "max_model_len": settings.max_model_len,
                "max_num_batched_tokens": settings.max_num_batched_tokens,
                "kv_cache_memory_bytes": settings.kv_cache_bytes or (1 << 28 if on_cpu else None),
                "gpu_memory_utilization": settings.gpu_memory_utilization,
                "enforce_eager": not settings.compiled,
                "enable_prefix_caching": True,
                "scheduling_policy": "priority",
                "stream_interval": settings.stream_interval,
                "disable_log_stats": True,
                "use_tqdm_on_load": False,
                "distributed_executor_backend": "uni",
                # Constants of the compiled graph: a cached one must be compiled for the same.
                "additional_config": {
                    "lm": self._config.to_dict(),
                    "store": asdict(self._store.shape),
                },
                "worker_cls": "engine.runners.v1.VoxgateCPUWorker"
                if on_cpu
                else "engine.runners.v2.VoxgateGPUWorker",
            }
            quantized = vllm_config(settings.quantization)
            if quantized is not None:
                options["hf_overrides"] = {"quantization_config": quantized}
            if settings.compiled and not on_cpu:
                sizes = {"max_cudagraph_capture_size": settings.max_num_seqs}
                options["compilation_config"] = sizes
            self._llm = AsyncLLM.from_engine_args(
                AsyncEngineArgs(**options), stat_loggers=[self._counters.logger]
            )

    def _environment(self) -> dict[str, str]:
        """Variables the engine process must start with."""
        variables = {
            PATH_VARIABLE: str(self._store.path),
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
            "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "ERROR"),
            "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
            "PYTHONWARNINGS": os.environ.get("PYTHONWARNINGS", "ignore::FutureWarning"),
        }
        if self._settings.device == "cuda":
            return variables | {"VLLM_USE_V2_MODEL_RUNNER": "1"}
        # The worker shares the engine core's process: on the CPU vLLM would otherwise start one
        # more, and the two would spin on each other's messages on the cores the model needs.
        variables["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        cores = self._settings.cores
        if cores is not None:
            variables["OMP_NUM_THREADS"] = str(len(cores))
            variables["GOMP_CPU_AFFINITY"] = " ".join(map(str, cores))
        return variables

    def _on_death(self) -> None:
        """The engine process ended by itself."""
        _log.error("the engine process died; %s", "starting another")
        self._forget_sentinels()
        self._state = "restarting"
        self._fail_pending()
        self._restart = asyncio.get_running_loop().create_task(self._relaunch())

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
        """Shut the current engine down, if there is one."""
        self._forget_sentinels()
        llm, self._llm = self._llm, None
        if llm is not None:
            self._fail_pending(llm)
            if llm.output_handler is not None:
                # Or it would report the end of the engine process as an error.
                llm.output_handler.cancel()
            await asyncio.to_thread(_shut_down, llm)

    def _forget_sentinels(self) -> None:
        loop = asyncio.get_running_loop()
        for sentinel in self._sentinels:
            loop.remove_reader(sentinel)
        self._sentinels = []

    def _fail_pending(self, llm: AsyncLLM | None = None) -> None:
        from vllm.v1.engine.exceptions import EngineDeadError

        llm = llm or self._llm
        if llm is not None:
            llm.output_processor.propagate_error(EngineDeadError())

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


def _shut_down(llm: AsyncLLM) -> None:
    processes = llm.engine_core.resources.engine_manager.processes
    llm.shutdown(timeout=2.0)
    for process in processes:
        process.join()


class _Counters:
    """What `stats` reports, fed by vLLM once a step."""

    def __init__(self) -> None:
        self.frames = 0
        self._preemptions = self._queries = self._hits = 0
        self.gauges_to_zero()

    def gauges_to_zero(self) -> None:
        self._running = self._waiting = 0
        self._usage = 0.0

    def logger(self, vllm_config: Any, engine_index: int = 0) -> Any:
        """vLLM's `StatLoggerFactory`."""
        from vllm.v1.metrics.loggers import StatLoggerBase

        counters = self

        class Logger(StatLoggerBase):  # type: ignore[misc]
            def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
                pass

            def record(
                self,
                scheduler_stats: Any,
                iteration_stats: Any,
                mm_cache_stats: Any = None,
                engine_idx: int = 0,
            ) -> None:
                counters.record(scheduler_stats, iteration_stats)

            def log_engine_initialized(self) -> None:
                pass

        return Logger(vllm_config, engine_index)

    def record(self, scheduler: Any, iteration: Any) -> None:
        if scheduler is not None:
            self._running = scheduler.num_running_reqs
            self._waiting = scheduler.num_waiting_reqs
            self._usage = scheduler.kv_cache_usage
            self._queries += scheduler.prefix_cache_stats.queries
            self._hits += scheduler.prefix_cache_stats.hits
        if iteration is not None:
            self._preemptions += iteration.num_preempted_reqs

    def snapshot(self, state: str, restarts: int) -> EngineStats:
        return EngineStats(
            state=state,
            running=self._running,
            waiting=self._waiting,
            kv_cache_usage=self._usage,
            prefix_cache_queries=self._queries,
            prefix_cache_hits=self._hits,
            preemptions=self._preemptions,
            restarts=restarts,
            frames=self.frames,
        )


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables for the process about to be started, and put back what was there."""
    with _ENVIRONMENT_LOCK:
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
