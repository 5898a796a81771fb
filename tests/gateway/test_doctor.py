from __future__ import annotations

import socket
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from gateway.doctor import GIB, MIB, Finding, Machine, Status, diagnose, probe

GOOD = Machine(
    system="Linux",
    architecture="x86_64",
    python=(3, 11, 9),
    cores=2.0,
    memory=8 * GIB,
    memory_available=6 * GIB,
    cpu="Some CPU",
    cpu_flags=frozenset({"avx2", "avx512f"}),
    opus="libopus 1.3.1",
    numa=True,
    codecs_missing=(),
    vllm="0.32.0",
    torch="2.13.0+cpu",
    torchvision=False,
    voice=True,
    gpus=(),
    compiler="/usr/bin/g++",
    python_headers=True,
    shared_memory_free=1 * GIB,
    disk=Path("/home"),
    disk_free=20 * GIB,
    open_files=65536,
    port=8080,
    port_use="free",
    player="aplay",
)


def finding(machine: Machine, name: str) -> Finding:
    [found] = [each for each in diagnose(machine) if each.name == name]
    return found


def test_a_fit_machine_has_nothing_to_fix() -> None:
    assert [(f.status, f.fix) for f in diagnose(GOOD)] == [(Status.OK, "")] * len(diagnose(GOOD))


@pytest.mark.parametrize(
    ("change", "name", "status", "fix"),
    [
        ({"python": (3, 10, 2)}, "Python", "fail", "PYTHON="),
        ({"python": (3, 12, 1)}, "Python", "warn", "3.11"),
        ({"architecture": "aarch64"}, "System", "warn", "container image"),
        ({"system": "Darwin"}, "System", "fail", "container image"),
        ({"cores": 1.5}, "CPU cores", "warn", "--cpus 2"),
        ({"memory_available": 3 * GIB}, "Memory", "warn", "4 GiB"),
        ({"memory_available": 1 * GIB}, "Memory", "fail", "4 GiB"),
        ({"cpu_flags": frozenset({"avx2"})}, "CPU instructions", "warn", "AVX-512"),
        ({"cpu_flags": frozenset[str]()}, "CPU instructions", "fail", "AVX2"),
        ({"opus": None}, "libopus", "fail", "apt-get install libopus0"),
        ({"numa": False}, "libnuma", "fail", "apt-get install libnuma1"),
        ({"codecs_missing": ("flac",)}, "Codecs", "warn", "apt-get install flac"),
        ({"vllm": None}, "Speech engine", "fail", "make setup"),
        ({"torch": None}, "Speech engine", "fail", "make setup"),
        ({"torchvision": True}, "Speech engine", "fail", "pip uninstall torchvision"),
        ({"voice": False}, "Embedded voice", "fail", "--checkpoint"),
        ({"compiler": None}, "C++ compiler", "warn", "install g++"),
        ({"python_headers": False}, "C++ compiler", "warn", "install python3.11-dev"),
        ({"shared_memory_free": 32 * MIB}, "Shared memory", "warn", "--shm-size"),
        ({"shared_memory_free": 8 * MIB}, "Shared memory", "fail", "--shm-size"),
        ({"disk_free": 100 * MIB}, "Disk", "warn", "XDG_CACHE_HOME"),
        ({"open_files": 1024}, "Open files", "warn", "ulimit -n"),
        ({"port_use": "forbidden", "port": 80}, "Port 80", "fail", "--port 8080"),
        ({"port_use": "taken"}, "Port 8080", "fail", "--port 8081"),
        ({"player": None}, "Audio player", "warn", "alsa-utils"),
    ],
)
def test_each_lack_is_named_with_its_remedy(
    change: dict[str, Any], name: str, status: str, fix: str
) -> None:
    machine = replace(GOOD, **change)
    found = finding(machine, name)
    assert found.status == status
    assert fix in found.fix
    others = [each for each in diagnose(machine) if each.name != name]
    assert {each.status for each in others} == {Status.OK}


@pytest.mark.parametrize(
    ("change", "name", "found"),
    [
        ({"gpus": ("NVIDIA H200, 143771 MiB",)}, "GPU", "NVIDIA H200, 143771 MiB"),
        ({"torch": "2.11.0", "torchvision": True}, "Speech engine", "vLLM 0.32.0, torch 2.11.0"),
        ({"open_files": -1}, "Open files", "unlimited"),
        ({"port_use": "voxgate"}, "Port 8080", "a Voxgate gateway is running there"),
    ],
)
def test_what_is_fine_is_told(change: dict[str, Any], name: str, found: str) -> None:
    told = finding(replace(GOOD, **change), name)
    assert (told.status, told.found) == (Status.OK, found)


def test_this_machine_is_read() -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    machine = probe("127.0.0.1", port)
    assert machine.python == sys.version_info[:3]
    assert machine.cores > 0
    assert 0 < machine.memory_available <= machine.memory
    assert machine.opus is not None
    assert "opus" in machine.opus
    assert machine.port_use == "free"
    assert machine.disk.exists()


@pytest.mark.parametrize(
    ("does", "found"),
    [
        ("echo 'NVIDIA H200, 143771 MiB'; echo 'NVIDIA L4, 23034 MiB'", 2),
        ("echo no driver >&2; exit 9", 0),
    ],
)
def test_gpus_are_read(
    does: str, found: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{does}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert len(probe("127.0.0.1", 0).gpus) == found


def test_a_port_held_by_another_program() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert probe("127.0.0.1", other.getsockname()[1]).port_use == "taken"


class Health(BaseHTTPRequestHandler):
    body: bytes

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("body", "use"),
    [
        (b'{"status": "ok", "engine": "ready", "sessions": 0, "draining": false}', "voxgate"),
        (b'{"status": "ok"}', "taken"),
        (b"1", "taken"),
        (b"<html>", "taken"),
    ],
)
def test_a_port_that_answers(body: bytes, use: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Health, "body", body, raising=False)
    with HTTPServer(("127.0.0.1", 0), Health) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        assert probe("127.0.0.1", server.server_port).port_use == use
