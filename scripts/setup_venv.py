"""Set-up behind `make setup`: system libraries, .venv, pinned packages. Standard library only.

Idempotent: a stamp in .venv remembers the locks it was made from, and an unchanged one returns at
once. Nothing outside .venv is touched except missing Debian packages, and those only as root or
where sudo asks no password.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PIP = [str(VENV / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
ENGINE_LOCK = ROOT / "requirements" / "engine-cpu.lock"
DEV_LOCK = ROOT / "requirements" / "dev.lock"
FRAMEWORKS = ROOT / ".venv-frameworks"
FRAMEWORKS_LOCK = ROOT / "requirements" / "frameworks.lock"
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


# -- system packages ------------------------------------------------------------------------------


def loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def missing_system_packages() -> tuple[list[str], list[str]]:
    """Debian packages that are not there: those Voxgate cannot run without, and the useful ones."""
    minor = f"python{sys.version_info.major}.{sys.version_info.minor}"
    essential = []
    if importlib.util.find_spec("ensurepip") is None:
        essential.append(f"{minor}-venv")
    if not loads("libopus.so.0"):
        essential.append("libopus0")
    if not loads("libnuma.so.1"):
        essential.append("libnuma1")
    useful = []
    if shutil.which("g++") is None:
        useful.append("g++")
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        useful.append(f"{minor}-dev")
    return essential, useful


CODECS = {
    "libmp3lame0": ("libmp3lame.so.0",),
    "libvo-aacenc0": ("libvo-aacenc.so.0",),
    "flac": ("libFLAC.so.14", "libFLAC.so.12", "libFLAC.so.8"),
}
"""Debian packages and the libraries they bring: MP3, AAC and FLAC for clients of other APIs."""


def missing_codecs() -> list[str]:
    return [package for package, files in CODECS.items() if not any(map(loads, files))]


def root_prefix() -> list[str] | None:
    """How to run a command as root here without asking anyone, or None."""
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo"):
        asked = subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False)
        if asked.returncode == 0:
            return ["sudo", "-n"]
    return None


def install_system_packages() -> None:
    """Install what is missing where that needs no question; else say the one line to type."""
    essential, useful = missing_system_packages()
    wanted, codecs = essential + useful, missing_codecs()
    if not wanted and not codecs:
        return
    prefix = root_prefix() if shutil.which("apt-get") else None
    if prefix is not None:
        say(f"Installing system packages: {' '.join(wanted + codecs)}")
        apt = [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]
        install = ["install", "-y", "--no-install-recommends"]
        # Codecs one by one: not every release has each of them.
        each_alone = [[*install, codec] for codec in codecs]
        for arguments in (["update"], *([[*install, *wanted]] if wanted else []), *each_alone):
            done = subprocess.run(
                [*apt, *arguments],
                capture_output=True,
                text=True,
                stdin=subprocess.DEVNULL,
                check=False,
            )
        essential, useful = missing_system_packages()
        codecs = missing_codecs()
        if essential:
            say(done.stderr)
    if essential:
        command = f"sudo apt-get install {' '.join(essential + useful)}"
        raise SystemExit(
            f"Missing: {' '.join(essential)}. Type:  {command}   then the same make command again."
        )
    if useful:
        say(
            f"Without {' and '.join(useful)} the model runs uncompiled, about a third slower. "
            f"To change that:  sudo apt-get install {' '.join(useful)}"
        )
    if codecs:
        say(f"Some audio formats will be refused without:  sudo apt-get install {' '.join(codecs)}")


# -- packages -------------------------------------------------------------------------------------


def pins(lock: Path) -> list[str]:
    """The `name==version` of every package in a lock, without hashes and comments."""
    return re.findall(r"^([A-Za-z0-9][\w.-]*==[^\s;\\]+)", lock.read_text(), flags=re.MULTILINE)


def installed_count() -> int:
    return sum(1 for _ in VENV.glob("lib/python*/site-packages/*.dist-info"))


class Counter:
    """One line of progress on a terminal, a line now and then elsewhere."""

    def __init__(self, total: int) -> None:
        self._total, self._started, self._shown = total, time.monotonic(), 0.0
        self._tty = sys.stderr.isatty()

    def show(self, what: str, done: int) -> None:
        now = time.monotonic()
        line = f"  [{min(done, self._total):3d}/{self._total}] {what}"
        if self._tty:
            print(f"\r\033[K{line[:100]}", end="", file=sys.stderr, flush=True)
        elif now - self._shown >= 5:
            say(f"{line} ({now - self._started:.0f} s)")
            self._shown = now

    def close(self) -> None:
        if self._tty:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def pip_install(arguments: Sequence[str], on_line: Callable[[str], None]) -> str | None:
    """Run `pip install`; returns what it printed when it failed, else None."""
    command = [*PIP, "install", "--no-deps", "--no-input", "--progress-bar=off", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        output = []
        for line in process.stdout:
            output.append(line)
            on_line(line.strip())
    return "".join(output[-40:]) if process.returncode else None


def install_torch(requirement: str) -> None:
    """The CPU build is asked for by its own version, so that the public index's CUDA build, which
    is ten times the size, can never take its place."""
    say(f"Installing {requirement}")
    quiet: Callable[[str], None] = lambda line: None  # noqa: E731
    if pip_install([requirement], quiet) is None:
        return
    failure = pip_install([requirement, "--index-url", TORCH_CPU_INDEX], quiet)
    if failure is not None:
        raise SystemExit(f"{failure}\nCould not install {requirement}; see above.")


def install_lock(lock: Path) -> None:
    wanted = pins(lock)
    for requirement in [pin for pin in wanted if pin.startswith("torch==")]:
        install_torch(requirement)
    text = re.sub(r"^torch==.*\n", "", lock.read_text(), flags=re.MULTILINE)
    if platform.machine() != "x86_64":
        say(f"The lock's hashes are for x86-64; this is {platform.machine()}: versions only.")
        text = "\n".join(pin for pin in wanted if not pin.startswith("torch=="))
    rest = VENV / f"without-torch-{lock.name}.txt"
    rest.write_text(text)
    say(f"Installing {len(wanted)} packages of {lock.relative_to(ROOT)}")
    counter, seen, before = Counter(len(wanted)), [0], installed_count()
    finished = threading.Event()

    def watch_unpacking() -> None:
        """pip is silent while it unpacks, which is half of the time."""
        while not finished.wait(0.5):
            counter.show("unpacking", installed_count() - before)

    watcher = threading.Thread(target=watch_unpacking, daemon=True)

    def on_line(line: str) -> None:
        if line.startswith(("Collecting", "Requirement already")):
            seen[0] += 1
            counter.show(line, seen[0])
        elif line.startswith("Installing collected"):
            watcher.start()

    failure = pip_install(["-r", str(rest)], on_line)
    finished.set()
    if watcher.ident is not None:
        watcher.join()
    counter.close()
    if failure is not None:
        raise SystemExit(f"{failure}\nCould not install the packages of {lock.name}; see above.")


def digest(*files: Path) -> str:
    state = hashlib.sha256(sys.version.encode() + str(ROOT).encode())
    for file in files:
        state.update(file.read_bytes())
    return state.hexdigest()


def install_part(name: str, inputs: Sequence[Path], install: Callable[[], None]) -> None:
    """Run `install` unless the stamp says that these very inputs are installed already."""
    stamp, want = VENV / f".installed-{name}", digest(*inputs)
    if stamp.exists() and stamp.read_text() == want:
        return
    stamp.unlink(missing_ok=True)
    install()
    stamp.write_text(want)


def install_frameworks() -> None:
    """Into an environment of their own: their pins do not agree with the engine's."""
    lock = FRAMEWORKS_LOCK.relative_to(ROOT)
    say(f"Installing {len(pins(FRAMEWORKS_LOCK))} packages of {lock}")
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(FRAMEWORKS)], check=True)
    pip = [str(FRAMEWORKS / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    arguments = ["install", "--quiet", "--no-deps", "--no-input", "-r", str(FRAMEWORKS_LOCK)]
    if subprocess.run([*pip, *arguments], check=False).returncode:
        raise SystemExit(f"Could not install the packages of {lock}; see above.")


def make_venv() -> None:
    python = VENV / "bin" / "python"
    check = [str(python), "-c", "import pip, sys; sys.exit(sys.version_info[:2] != (3, 11))"]
    if python.exists() and subprocess.run(check, capture_output=True, check=False).returncode == 0:
        return
    say("Making .venv")
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], check=True)


def install_voxgate() -> None:
    failure = pip_install(["-e", str(ROOT)], lambda line: None)
    if failure is not None:
        raise SystemExit(f"{failure}\nCould not install Voxgate itself; see above.")


# -- the browser that the page is tested in -------------------------------------------------------


def succeeds(command: Sequence[str]) -> bool:
    done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=False)
    return done.returncode == 0


PLAYWRIGHT_STARTS = """
from playwright.sync_api import sync_playwright
with sync_playwright() as driver:
    driver.chromium.launch(args=["--no-sandbox"]).close()
"""


def has_browser() -> bool:
    """Whether one starts: Ubuntu's package is a stub that wants snap, Playwright's build may lack
    its libraries."""
    for name in ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome"):
        command = shutil.which(name)
        if command and succeeds([command, "--version"]):
            return True
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "ms-playwright"
    if not any(cache.glob("chromium*")):
        return False
    return succeeds([str(VENV / "bin" / "python"), "-c", PLAYWRIGHT_STARTS])


def install_browser() -> None:
    """Debian's Chromium, or else the build that Playwright brings; what to type where neither
    can be had."""
    if has_browser():
        return
    prefix = root_prefix()
    debian = shutil.which("apt-get") and "ubuntu" not in Path("/etc/os-release").read_text().lower()
    if prefix is not None and debian:
        say("Installing chromium, for the tests of the page")
        apt = [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]
        for arguments in (["update"], ["install", "-y", "--no-install-recommends", "chromium"]):
            succeeds([*apt, *arguments])
    playwright = [str(VENV / "bin" / "playwright"), "install", "chromium"]
    if not has_browser():
        say("Installing Playwright's Chromium, for the tests of the page")
        succeeds([*playwright, *(["--with-deps"] if prefix is not None else [])])
    if not has_browser():
        by_hand = (
            "sudo apt-get install chromium"
            if debian
            else f"{playwright[0]} install --with-deps chromium"
        )
        say(f"The tests of the page need a browser:  {by_hand}")


def install_portaudio() -> None:
    """For the tests that play; without it they are left out."""
    prefix = root_prefix()
    if not loads("libportaudio.so.2") and prefix is not None and shutil.which("apt-get"):
        say("Installing libportaudio2, for the tests that play")
        apt = [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]
        for arguments in (["update"], ["install", "-y", "libportaudio2"]):
            succeeds([*apt, *arguments])


def main() -> None:
    parser = argparse.ArgumentParser(description="Set up Voxgate in .venv.")
    parser.add_argument("--dev", action="store_true", help="also the test and lint tools")
    arguments = parser.parse_args()
    started = time.monotonic()
    install_system_packages()
    make_venv()
    install_part("engine", [ENGINE_LOCK], lambda: install_lock(ENGINE_LOCK))
    if arguments.dev:
        install_part("dev", [DEV_LOCK], lambda: install_lock(DEV_LOCK))
        install_part("frameworks", [FRAMEWORKS_LOCK], install_frameworks)
        install_portaudio()
        install_browser()
    install_part("voxgate", [ROOT / "pyproject.toml"], install_voxgate)
    say(f"Set up in {time.monotonic() - started:.0f} s.")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("Set-up interrupted; run it again to go on.") from None
