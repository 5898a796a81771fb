"""A circuit breaker for nginx: gateways that do not speak are taken out, and let back when they do.

    breaker.py --upstream FILE --reload COMMAND http://gateway-1:8080 http://gateway-2:8080

nginx by itself notices a gateway that refuses, not one that hangs or whose sessions fail. Every
`--seconds` each gateway is asked for `/health/ready`, which speaks a word and tells when too many
of the pieces asked for failed lately; after `--fall` failures in a row the upstream is written anew
with that gateway `down` and nginx reloads, after `--rise` successes it comes back.
Connections that are open stay where they are. A gateway that drains is left in: it refuses new
sessions itself, and those that lost their connection have to find it. Were all of them down, all
stay. Standard library only.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit


@dataclass
class Gateway:
    """What is known of one."""

    url: str
    fall: int
    rise: int
    down: bool = False
    _streak: int = 0
    """Answers in a row that speak against its state."""

    def hear(self, well: bool) -> bool:
        """Take in one answer; whether the state changed."""
        self._streak = self._streak + 1 if well == self.down else 0
        if self._streak < (self.rise if self.down else self.fall):
            return False
        self.down, self._streak = not self.down, 0
        return True


def asks(url: str, timeout: float) -> bool:
    """Whether a gateway is to have sessions, or at least to be found by them."""
    try:
        with urllib.request.urlopen(f"{url}/health/ready", timeout=timeout):
            return True
    except urllib.error.HTTPError as answer:
        try:
            return bool(json.loads(answer.read()).get("reason") == "draining")
        except ValueError:
            return False
    except OSError:
        return False


def upstream(gateways: Sequence[Gateway]) -> str:
    """The block of nginx's configuration."""
    out = {id(each) for each in gateways if each.down}
    if len(out) == len(gateways):
        out = set()
    lines = [
        f"    server {urlsplit(each.url).netloc} max_fails=3 fail_timeout=5s"
        f"{' down' if id(each) in out else ''};"
        for each in gateways
    ]
    return "\n".join(["upstream voxgate {", "    hash $voxgate_route consistent;", *lines, "}", ""])


def look(gateways: Sequence[Gateway], timeout: float) -> bool:
    """Ask all at once; whether any changed."""
    answers: dict[int, bool] = {}

    def ask(index: int) -> None:
        answers[index] = asks(gateways[index].url, timeout)

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(len(gateways))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    changed = [each.hear(answers[index]) for index, each in enumerate(gateways)]
    for each, new in zip(gateways, changed, strict=True):
        if new:
            print(f"{each.url} is {'taken out' if each.down else 'back'}", file=sys.stderr)
    return any(changed)


def write(path: Path, text: str) -> None:
    """In one step: nginx may read at any moment."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gateways", nargs="+", metavar="URL")
    parser.add_argument("--upstream", type=Path, required=True, help="file to write")
    parser.add_argument("--reload", required=True, help="command that makes nginx read it")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--timeout", type=float, default=6.0)
    parser.add_argument("--fall", type=int, default=2)
    parser.add_argument("--rise", type=int, default=2)
    arguments = parser.parse_args()
    gateways = [Gateway(url, arguments.fall, arguments.rise) for url in arguments.gateways]
    while True:
        begun = time.monotonic()
        if look(gateways, arguments.timeout):
            write(arguments.upstream, upstream(gateways))
            subprocess.run(arguments.reload, shell=True, check=False)
        time.sleep(max(0.0, arguments.seconds - (time.monotonic() - begun)))


if __name__ == "__main__":
    main()
