"""Settings of one engine: which checkpoint, which device, how much of the machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What `engine.synthesizer.create` needs to know.

    `checkpoint` is a directory in the official ChatTTS release layout or a packed voice; `None` is
    the embedded voice. `None` elsewhere means: chosen for the device.
    """

    checkpoint: Path | None = None
    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    quantization: Literal["auto", "none", "int8", "fp8", "int4"] = "auto"
    """Weights of the language model's linear layers, made while loading."""
    max_streams: int | None = None
    """Requests the engine runs in one step (vLLM `max_num_seqs`)."""
    kv_cache_bytes: int | None = None
    gpu_memory_utilization: float = 0.6
    block_size: int | None = None
    max_num_batched_tokens: int | None = None
    max_model_len: int | None = None
    compiled: bool | None = None
    """Compiled model (CPU) or CUDA graphs; `None`: when the machine can."""
    stream_interval: int | None = None
    """Frames a message from vLLM after the first; fewer messages cost the front end less."""
    decode_from: Literal["codes", "hidden"] | None = None
    look_ahead_frames: int = 8
    """Only for a codec that is not causal; docs/decisions/codec-streaming.md has the price."""
    decode_threads: int = 1
    seed_voices: int = 0
    """Random speakers to offer where the checkpoint has speaker statistics."""
    vllm: Mapping[str, Any] = field(default_factory=dict)
    """Engine arguments of vLLM by name, before those chosen here: for measurements."""


def cores() -> list[int]:
    """The CPU cores this process may use."""
    return sorted(os.sched_getaffinity(0))


def split_cores(available: list[int]) -> tuple[list[int], list[int]]:
    """Cores of the front end (gateway, codec) and of the language model.

    One core must stay free of the language model's spinning OpenMP threads, or every packet waits
    for them; from eight cores on the codec earns a second one.
    """
    if len(available) < 2:
        return available, available
    front = 1 if len(available) < 8 else 2
    return available[:front], available[front:]
