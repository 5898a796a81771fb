"""A real gateway with a scripted engine for timing and faults, and one with the real engine."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(Path(__file__).parent), str(_TESTS / "gateway"), str(_TESTS / "web")]

_spec = importlib.util.spec_from_file_location(
    "gateway_conftest", Path(__file__).parents[1] / "gateway" / "conftest.py"
)
assert _spec is not None
assert _spec.loader is not None
_shared = importlib.util.module_from_spec(_spec)
sys.modules["gateway_conftest"] = _shared
_spec.loader.exec_module(_shared)
event_loop_policy = _shared.event_loop_policy
run = _shared.run


@pytest.fixture(scope="session")
def spoken_url() -> Iterator[str]:
    """`voxgate serve` with the real engine and the embedded voice, one for all tests."""
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway.cli", "serve", "--port", str(port), "--eager"],
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if "Ctrl-C stops it" in line:
            break
    else:
        pytest.fail("".join(lines))
    yield f"http://127.0.0.1:{port}"
    process.terminate()
    process.wait(60)
