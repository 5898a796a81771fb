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
from chaos_stage import Result, Stage, listen, small_disk
from lossy import lossy_network
from processes import gateway


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
            if limit:
                before = resource.getrlimit(resource.RLIMIT_NOFILE)
                resource.setrlimit(resource.RLIMIT_NOFILE, (before[0], before[1]))
                if options.get("guarded", True):
                    arguments += ["--max-connections", str(limit - 64)]
            server = await stack.enter_async_context(
                gateway(
                    *arguments,
                    scripted=scripted,
                    quiet=True,
                    environment=options.get("environment"),
                    prefix=options.get("prefix", ()),
                )
            )
            if limit:
                resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (limit, limit))
            stage = Stage(server, result, full)
            async with asyncio.timeout(4000 if full else 300):
                await function(stage)
            if options.get("lossy"):
                result.note = f"{link.lost} of {link.lost + link.carried} IP packets lost"
            clear = "closed" not in result.harmed_codes and "unreachable" not in result.harmed_codes
            result.passed = clear and (
                result.expected != "nobody harmed" or not (result.harmed or result.packets_lost)
            )
        except Exception as failure:
            result.note = f"{type(failure).__name__}: {failure} {result.note}".strip()
    result.seconds = round(time.monotonic() - begun, 1)
    return result


def table(results: list[Result]) -> str:
    """A Markdown table."""
    lines = [
        "| Fault | Sessions | Harmed | Packets lost or twice | Resumed | Served again, s "
        "| Memory, MiB / descriptors | |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for each in results:
        codes = f" ({', '.join(each.harmed_codes)})" if each.harmed_codes else ""
        grown = f"{each.memory_growth_mib:+g} / {each.descriptor_growth:+d}"
        if not (each.memory_growth_mib or each.descriptor_growth):
            grown = ""
        verdict = "" if each.passed else "**not as expected.** "
        lines.append(
            f"| {each.what} | {each.sessions} | {each.harmed}{codes} | {each.packets_lost} of "
            f"{each.packets:,} | {each.resumes} | {each.recovery_seconds:g} | {grown} "
            f"| {verdict}{each.note} |"
        )
    return "\n".join(lines)


def head() -> str:
    """The commit measured."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


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
    commit = head()
    if arguments.json and arguments.json.exists() and len(results) < len(FAULTS):
        # Some faults anew: the others stay as they were measured.
        before = json.loads(arguments.json.read_text())["results"]
        known = {each["fault"]: Result(**each) for each in before}
        known |= {each.fault: each for each in results}
        results = [known[name] for name in FAULTS if name in known]
    document = {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit,
        "machine": f"{os.cpu_count()} cores, {platform.platform()}",
        "full": arguments.full,
        "results": [asdict(each) for each in results],
    }
    if arguments.json:
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")
    if arguments.markdown:
        length = "at full length" if arguments.full else "long ones shortened"
        arguments.markdown.write_text(
            "# Faults\n\n`make chaos`; every fault has a gateway of its own, with the real engine "
            "where the text names the engine, else a scripted one.\n\n"
            f"{table(results)}\n\n*{document['machine']}, commit {commit}, {document['date']}, "
            f"{length}*\n"
        )
    return 0 if all(each.passed or each.note.startswith("not run") for each in results) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
