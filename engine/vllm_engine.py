"""One vLLM engine process: how it is configured, started and stopped."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import psutil

from engine.frames import PATH_VARIABLE, FrameStore
from engine.lm_config import LmConfig
from engine.runners import launch
from engine.runners.environment import constants, environment
from engine.runners.imports import settled
from engine.runners.lifetime import CREATOR_VARIABLE

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM

    from engine.quantization import Quantization

Dtype = Literal["float32", "bfloat16", "float16"]

_CPU_KV_BYTES = 1 << 28
_SHARED_MEMORY = Path("/dev/shm")
_SHARED_MEMORY_BYTES = 1 << 22
"""Semaphores and queues of an engine process take far less, but nothing goes without them."""


@dataclass(frozen=True, slots=True)
class LanguageModelSettings:
    """How to run one checkpoint.

    `model_dir` holds config.json and safetensors. `kv_cache_bytes` defaults to 256 MiB on the CPU,
    where vLLM would otherwise take most of the memory. `compiled` means torch.compile on the CPU
    (needs a C++ compiler) and CUDA graphs on a GPU. `cores` bind the model's threads (CPU only).
    `ring_rows` generated frames are kept, `hidden_ring_rows` of them with their hidden state where
    the checkpoint asks for it: those must be read before that many more frames are generated.
    `vllm`: engine arguments that go before those chosen here.
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
    vllm: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kv_block(self) -> int:
        """KV block size in positions."""
        return self.block_size or (32 if self.device == "cpu" else 16)

    @property
    def hidden_rows(self) -> int:
        """Rows of the ring of hidden states, where the checkpoint asks for one."""
        usual = 1 << (16 if self.device == "cpu" else 18)
        return min(self.hidden_ring_rows or usual, self.ring_rows)


def start(
    settings: LanguageModelSettings,
    lm_config: LmConfig,
    store: FrameStore,
    stat_logger: Callable[..., Any],
    deliver: Callable[[AsyncLLM], None],
) -> None:
    """Start an engine process on a frame store; blocks for seconds.

    The engine is handed to `deliver` and not returned: while it starts, vLLM keeps exceptions whose
    tracebacks hold the frames of its callers, and with them what these return, for good.

    Raises `OSError` where shared memory is full, and what vLLM raises.
    """
    need_room(_SHARED_MEMORY)
    on_cpu = settings.device == "cpu"
    if on_cpu:
        launch.start_importing(compiled=settings.compiled)
    with contextlib.ExitStack() as stack:
        # vLLM's sockets and rendezvous need names only until all have met.
        meeting = stack.enter_context(tempfile.TemporaryDirectory(prefix="voxgate-"))
        stack.enter_context(environment(_variables(settings, store.path, meeting)))
        with contextlib.nullcontext() if "vllm.v1.engine.async_llm" in sys.modules else settled():
            from vllm.engine.arg_utils import AsyncEngineArgs
            from vllm.v1.engine.async_llm import AsyncLLM

            from engine.quantization import vllm_config

        options: dict[str, Any] = {
            "model": str(settings.model_dir),
            "skip_tokenizer_init": True,
            "generation_config": "vllm",
            "dtype": settings.dtype,
            "block_size": settings.kv_block,
            "max_num_seqs": settings.max_num_seqs,
            "max_model_len": settings.max_model_len,
            "max_num_batched_tokens": settings.max_num_batched_tokens,
            "kv_cache_memory_bytes": settings.kv_cache_bytes or (_CPU_KV_BYTES if on_cpu else None),
            "gpu_memory_utilization": settings.gpu_memory_utilization,
            "enforce_eager": not settings.compiled,
            "enable_prefix_caching": True,
            "scheduling_policy": "priority",
            # Not yet measured on a GPU, where a step costs little more for more requests.
            "scheduler_cls": "engine.scheduler.PacedScheduler" if on_cpu else None,
            "disable_log_stats": True,
            "use_tqdm_on_load": False,
            "distributed_executor_backend": "uni",
            # Constants of the compiled graph: a cached one must be compiled for the same.
            "additional_config": {"lm": lm_config.to_dict(), "store": asdict(store.shape)},
            "worker_cls": "engine.runners.v1.VoxgateCPUWorker"
            if on_cpu
            else "engine.runners.v2.VoxgateGPUWorker",
        }
        quantized = vllm_config(settings.quantization)
        if quantized is not None:
            options["hf_overrides"] = {"quantization_config": quantized}
        if on_cpu:
            stack.enter_context(launch.forked_engine())
        elif settings.compiled:
            sizes = {"max_cudagraph_capture_size": settings.max_num_seqs}
            options["compilation_config"] = sizes
        args = AsyncEngineArgs(**{**options, **settings.vllm})
        deliver(AsyncLLM.from_engine_args(args, stat_loggers=[stat_logger]))


def need_room(folder: Path) -> None:
    """Raises `OSError` that says what to do when the file system of `folder` is nearly full."""
    if folder.is_dir() and shutil.disk_usage(folder).free < _SHARED_MEMORY_BYTES:
        raise OSError(
            errno.ENOSPC,
            f"Shared memory is full: the speech engine needs {_SHARED_MEMORY_BYTES >> 20} MiB free "
            f"in {folder}. Remove what fills it, or give the container more "
            "(docker run --shm-size 1g).",
        )


def stop(llm: AsyncLLM) -> None:
    """Stop the engine process and wait until it is gone."""
    children = _children(llm)
    llm.shutdown(timeout=2.0)
    for process in children:
        process.join()


def sentinels(llm: AsyncLLM) -> list[int]:
    """File descriptors that become readable when the engine process ends."""
    return [process.sentinel for process in _children(llm)]


def processes(llm: AsyncLLM) -> list[psutil.Process]:
    """The engine process, so that it can be told from a later one with the same id."""
    return [psutil.Process(process.pid) for process in _children(llm)]


def _children(llm: AsyncLLM) -> Any:
    """The engine process as vLLM's list of `multiprocessing` processes, before it is shut down."""
    return llm.engine_core.resources.engine_manager.processes


def _variables(settings: LanguageModelSettings, frames: Path, meeting: str) -> dict[str, str]:
    """Environment variables the engine process must start with."""
    variables = constants() | {
        PATH_VARIABLE: str(frames),
        CREATOR_VARIABLE: str(os.getpid()),
        "VLLM_RPC_BASE_PATH": meeting,
    }
    if settings.device == "cuda":
        return variables | {"VLLM_USE_V2_MODEL_RUNNER": "1"}
    # The worker shares the engine core's process: on the CPU vLLM would otherwise start one more,
    # and the two would spin on each other's messages on the cores the model needs.
    variables["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    if settings.cores is not None:
        variables[launch.CORES_VARIABLE] = ",".join(map(str, settings.cores))
    return variables
