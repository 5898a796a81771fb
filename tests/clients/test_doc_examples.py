"""The examples in the documentation, run as they stand against the real voice."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from clients_support import decoded
from test_sound_card import card

from gateway import client, client_sync

ROOT = Path(__file__).parents[2]
DOCUMENTS = ("README.md", "README.zh-CN.md", "docs/http.md")
ADDRESS = "127.0.0.1:8080"
pytestmark = pytest.mark.engine


def blocks(language: str, *documents: str) -> Iterator[object]:
    for document in documents:
        text = (ROOT / document).read_text()
        found = re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
        for number, code in enumerate(found):
            yield pytest.param(code, id=f"{document}-{number}")


def run_python(code: str, url: str, folder: Path) -> None:
    """In an interpreter of its own, which allows `await` outside of functions."""
    code = code.replace(ADDRESS, url.removeprefix("http://"))
    program = (
        "import ast, asyncio, inspect, sys\n"
        "code = compile(sys.stdin.read(), 'example', 'exec', ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)\n"
        "done = eval(code, {'play': lambda sound: None})\n"
        "asyncio.run(done) if inspect.iscoroutine(done) else None\n"
    )
    _, environment = card(folder)
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=code, text=True, cwd=folder, capture_output=True, timeout=60,
        env={**environment, "PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("code", blocks("python", *DOCUMENTS))
def test_python_of_the_documents_runs(code: str, spoken_url: str, tmp_path: Path) -> None:
    if "Speakers" in code:
        pytest.importorskip("sounddevice", reason="libportaudio2", exc_type=OSError)
    run_python(code, spoken_url, tmp_path)
    for file in tmp_path.glob("hello.*"):
        assert decoded(file.read_bytes())[0].size > 5_000


@pytest.mark.parametrize("module", [client, client_sync])
def test_the_example_of_a_module_runs(module: object, spoken_url: str, tmp_path: Path) -> None:
    documentation = inspect.getdoc(module) or ""
    name = "VoiceClient" if module is client else "SyncVoiceClient"
    code = documentation.split("\n\n", 1)[1]
    head = f"from {module.__name__} import Audio, {name}\n"  # type: ignore[attr-defined]
    run_python(head + code, spoken_url, tmp_path)


@pytest.mark.parametrize("code", blocks("sh", "docs/http.md"))
def test_commands_of_the_documents_run(code: str, spoken_url: str, tmp_path: Path) -> None:
    code = code.replace(ADDRESS, spoken_url.removeprefix("http://"))
    code = code.replace("curl ", "curl --fail -s ")
    done = subprocess.run(
        ["bash", "-e"], input=code, text=True, cwd=tmp_path, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for file in tmp_path.iterdir():
        assert decoded(file.read_bytes())[0].size > 5_000
    assert list(tmp_path.iterdir()) or "job_id" in done.stdout
