"""The software bill of materials: CycloneDX 1.6, of the locks.

    python scripts/sbom.py [--target cpu|cuda] [--debian] > sbom.cdx.json

Names, versions and hashes are those of requirements/engine-*.lock; licences those that the
installed packages declare. `--debian` adds the Debian packages of the system this runs on, which is
how an image lists itself.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import uuid
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import quote

ROOT = Path(__file__).resolve().parent.parent
PIN = re.compile(
    r"^([A-Za-z0-9][\w.-]*)==([^\s;\\]+)((?:[^\n]*\\\n\s+--hash=sha256:[0-9a-f]{64})*)", re.M
)


def licence(name: str) -> list[dict[str, Any]]:
    try:
        found = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return []
    expression = found.get("License-Expression")
    if expression:
        return [{"expression": expression}]
    classifiers = [
        each.rsplit(" :: ", 1)[1]
        for each in found.get_all("Classifier") or ()
        if each.startswith("License :: OSI Approved ::")
    ]
    text = classifiers or [(found.get("License") or "").split("\n")[0]]
    return [{"license": {"name": each}} for each in text if each]


def component(name: str, version: str, tail: str) -> dict[str, Any]:
    hashes = re.findall(r"sha256:([0-9a-f]{64})", tail)
    normal = re.sub(r"[-_.]+", "-", name).lower()
    purl = f"pkg:pypi/{normal}@{version.replace('+', '%2B')}"
    found: dict[str, Any] = {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
    }
    if hashes:
        found["hashes"] = [{"alg": "SHA-256", "content": each} for each in hashes]
    licences = licence(name)
    if licences:
        found["licenses"] = licences
    return found


def debian() -> list[dict[str, Any]]:
    """The packages that are installed here."""
    form = "${db:Status-Abbrev}\\t${Package}\\t${Version}\\t${Architecture}\\n"
    listed = subprocess.run(
        ["dpkg-query", "-W", f"-f={form}"], capture_output=True, text=True, check=True
    )
    found = []
    for line in listed.stdout.splitlines():
        state, name, version, architecture = line.split("\t")
        if not state.startswith("ii"):
            continue
        purl = f"pkg:deb/debian/{name}@{quote(version, safe='')}?arch={architecture}"
        found.append(
            {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
        )
    return found


def bill(target: str, *, with_debian: bool = False) -> dict[str, Any]:
    lock = (ROOT / "requirements" / f"engine-{target}.lock").read_text()
    components = [component(*found) for found in PIN.findall(lock)]
    if with_debian:
        components += debian()
    version = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.M)
    assert version is not None
    parts = " ".join(each["purl"] for each in components)
    serial = uuid.uuid5(uuid.NAMESPACE_URL, f"voxgate/{version[1]}/{target}/{lock}/{parts}")
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": "voxgate",
                "name": "voxgate",
                "version": version[1],
                "licenses": [{"expression": "Apache-2.0"}],
            }
        },
        "components": components,
        "dependencies": [{"ref": "voxgate", "dependsOn": [each["bom-ref"] for each in components]}],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--debian", action="store_true", help="with this system's packages")
    chosen = parser.parse_args()
    json.dump(bill(chosen.target, with_debian=chosen.debian), sys.stdout, indent=1)
    print()
