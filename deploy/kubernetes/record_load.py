"""Records what a gateway is asked for, to be replayed by replay_hpa.py.

python deploy/kubernetes/record_load.py http://127.0.0.1:8080 load.json --seconds 600
"""

from __future__ import annotations

import argparse
import json
import math
import time
import urllib.request
from pathlib import Path

NAMES = ("voxgate_admission_demand", "voxgate_admission_capacity", "voxgate_sessions")


def sample(url: str) -> dict[str, float]:
    with urllib.request.urlopen(f"{url}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    values = dict(line.split(" ", 1) for line in lines if not line.startswith("#"))
    return {name.removeprefix("voxgate_"): float(values[name]) for name in NAMES}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("file", type=Path)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--every", type=float, default=5)
    arguments = parser.parse_args()
    begun = time.monotonic()
    samples = []
    while (now := time.monotonic() - begun) < arguments.seconds:
        found = sample(arguments.url)
        # Not known before the first speech.
        if math.isfinite(found["admission_capacity"]):
            samples.append({"seconds": round(now, 1), **found})
        time.sleep(arguments.every)
    arguments.file.write_text(json.dumps({"samples": samples}, indent=1) + "\n")


if __name__ == "__main__":
    main()
