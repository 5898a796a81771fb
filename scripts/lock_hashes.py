"""Writes the SHA-256 of every pinned package into the locks, so that pip refuses anything else.

    .venv/bin/python scripts/lock_hashes.py

Run it after changing a pin. The hashes are those of Linux on x86-64 with Python 3.11. torch has
none: its CPU build comes from another index than the rest, and set-up installs it by itself.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

LOCKS = [
    Path(__file__).parents[1] / "requirements" / f"{name}.lock"
    for name in ("engine-cpu", "dev", "frameworks")
]
PIN = re.compile(r"^([A-Za-z0-9][\w.-]*)==([^\s;\\]+)", re.MULTILINE)


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def hashes(pins: list[str]) -> dict[str, str]:
    """Package name to the hash of the file pip would install for it here."""
    with tempfile.TemporaryDirectory() as folder:
        wanted, report = Path(folder, "pins.txt"), Path(folder, "report.json")
        wanted.write_text("\n".join(pins))
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--no-deps"]
        command += ["--ignore-installed", "--report", str(report), "-r", str(wanted)]
        subprocess.run(command, check=True)
        packages = json.loads(report.read_text())["install"]
    return {
        normal(each["metadata"]["name"]): each["download_info"]["archive_info"]["hashes"]["sha256"]
        for each in packages
    }


def main() -> None:
    for lock in LOCKS:
        text = lock.read_text()
        head = "".join(re.findall(r"^#.*\n", text, re.MULTILINE))
        pins = {normal(name): f"{name}=={version}" for name, version in PIN.findall(text)}
        found = hashes([pin for name, pin in pins.items() if name != "torch"])
        lines = [
            f"{pin} \\\n    --hash=sha256:{found[name]}\n" if name in found else f"{pin}\n"
            for name, pin in sorted(pins.items())
        ]
        lock.write_text(head + "".join(lines))
        print(f"{lock.name}: {len(found)} of {len(pins)} packages have a hash")


if __name__ == "__main__":
    main()
