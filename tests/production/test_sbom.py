from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import sbom  # noqa: E402


def test_every_locked_package_is_in_the_bill_with_its_hash() -> None:
    lock = (ROOT / "requirements" / "engine-cpu.lock").read_text()
    pins = dict(re.findall(r"^([\w.-]+)==([^\s\\]+)", lock, re.MULTILINE))
    found = {each["name"]: each for each in sbom.bill("cpu")["components"]}
    assert {name: each["version"] for name, each in found.items()} == pins
    without = {name for name, each in found.items() if "hashes" not in each}
    assert without == {"torch"}
    assert len([each for each in found.values() if "licenses" in each]) > 0.9 * len(found)


def test_an_image_lists_what_debian_it_has_too() -> None:
    found = [each["purl"] for each in sbom.bill("cpu", with_debian=True)["components"]]
    assert any(each.startswith("pkg:deb/debian/libc6@") for each in found)
    assert len(set(found)) == len(found)


def test_the_bill_of_one_lock_is_always_the_same() -> None:
    assert sbom.bill("cpu") == sbom.bill("cpu")
