"""Faults, one after the other, against real processes: `make chaos`.

    python tests/production/chaos.py [--only NAME ...] [--full] [--json FILE] [--markdown FILE]

Every fault comes over a gateway of its own while listeners speak. What is counted: sessions harmed
(those that did not hear their whole text), packets lost or repeated within a session, growth of
memory and descriptors, and how long until a new listener is served again. `--full` runs the long
ones at their full length. The bad network and the full disk need root.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import resource
import subprocess
import sys
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import chaos_machine  # noqa: F401
from chaos_faults import FAULTS
from chaos_report import markdown, plot
from chaos_stage import Result, Stage, listen, small_disk
from lossy import lossy_network
from processes import gateway

HERE = Path(__file__).parent


async def run_one(name: str, full: bool) -> Result:
    function, options = FAULTS[name]
    result = Result(fault=name, what=options["what"], expected=options["expect"])
    needs = options.get("needs", "")
    if needs == "root" and os.geteuid() != 0:
        result.note = "not run: needs root"
        return result
    if needs.startswith("/") and not Path(needs).exists():
        result.note = f"not run: {needs} is missing"
        return result
    begun = time.monotonic()
    scripted = options.get("scripted", True)
    arguments = ["--capacity-share", options.get("share", "0"), *options["arguments"]]
    if not scripted:
        arguments.append("--eager")
    async with contextlib.AsyncExitStack() as stack:
        try:
            if options.get("disk"):
                folder = stack.enter_context(small_disk(options["kib"]))
                arguments += [options["disk"], str(folder)]
                result.note = str(folder)
            if options.get("lossy"):
                link = stack.enter_context(lossy_network())
                arguments += ["--host", "0.0.0.0", "--insecure"]
            limit = options.get("descriptors")
            if limit and options.get("guarded", True):
                arguments += ["--max-connections", str(limit - 64)]
            server = await stack.enter_async_context(
                gateway(
                    *arguments,
                    scripted=scripted,
                    quiet=True,
                    environment=options.get("environment"),
                    prefix=options.get("prefix", ()),
                    patience=240,
                )
            )
            if limit:
                resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (limit, limit))
            stage = Stage(server, result, full)
            before = stage.open_descriptors(), stage.memory()
            async with asyncio.timeout(4000 if full else 480):
                await function(stage)
            if stage.server is server and not (result.memory_growth_mib or result.weights):
                await grown(stage, *before)
            if options.get("lossy"):
                result.note = f"{link.lost} of {link.lost + link.carried} IP packets lost"
            result.measured = f"{head()}, {datetime.now(UTC).date().isoformat()}"
            clear = "closed" not in result.harmed_codes and "unreachable" not in result.harmed_codes
            harmless = result.expected != "nobody harmed" or not result.harmed
            result.passed = clear and harmless and not result.packets_lost
        except Exception as failure:
            result.note = f"{type(failure).__name__}: {failure} {result.note}".strip()
    result.seconds = round(time.monotonic() - begun, 1)
    return result


async def grown(stage: Stage, descriptors: int, memory: float) -> None:
    """What the gateway's process has more of, once those who left are gone."""
    end = time.monotonic() + 5
    while stage.open_descriptors() > descriptors and time.monotonic() < end:
        await asyncio.sleep(0.1)
    stage.result.descriptor_growth = stage.open_descriptors() - descriptors
    stage.result.memory_growth_mib = round(stage.memory() - memory, 1)


def head() -> str:
    """The commit measured."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=HERE)
    return done.stdout.strip()


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=sorted(FAULTS), default=list(FAULTS))
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--listen", metavar="URL", help="only listen, and say what was heard")
    arguments = parser.parse_args()
    if arguments.listen:
        print(json.dumps(asdict(await listen(arguments.listen, 2))))
        return 0
    results = []
    for name in arguments.only:
        result = await run_one(name, arguments.full)
        results.append(result)
        verdict = "ok" if result.passed else "NOT AS EXPECTED"
        print(
            f"{name:24} {verdict:16} {result.seconds:6.1f} s  sessions {result.sessions:4d}  "
            f"harmed {result.harmed:3d} {','.join(result.harmed_codes)}  "
            f"lost {result.packets_lost}  {result.note}",
            flush=True,
        )
    if arguments.json and arguments.json.exists() and len(results) < len(FAULTS):
        # Some faults anew: the others stay as they were measured.
        before = json.loads(arguments.json.read_text())["results"]
        known = {each["fault"]: Result(**each) for each in before}
        known |= {each.fault: each for each in results}
        results = [known[name] for name in FAULTS if name in known]
    machine = f"{os.cpu_count()} cores, {platform.platform()}"
    if arguments.json:
        rows = [asdict(each) for each in results]
        document = {"kind": "faults", "machine": machine, "results": rows}
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")
    if arguments.markdown:
        arguments.markdown.write_text(markdown(results, machine))
        for each in results:
            if each.weights:
                plot(each.weights, arguments.markdown.with_name("chaos-soak.png"))
    return 0 if all(each.passed or each.note.startswith("not run") for each in results) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
