"""Where the time of packets goes: a flame chart of gateway and engine while users listen.

    python -m bench.flame --streams 12 --out docs/benchmarks/flame-cpu.svg

Needs py-spy (`pip install py-spy`), which samples processes from outside and slows them little, and
the right to look into other processes.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import shutil
import sys
from pathlib import Path

import uvloop

from bench import load
from bench.gateway_process import GatewayError, GatewayProcess
from bench.window import run_window


async def run(options: argparse.Namespace) -> None:
    """Raises `GatewayError`."""
    sampler = shutil.which("py-spy")
    if sampler is None:
        raise GatewayError("py-spy is not installed; type: pip install py-spy")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    async with GatewayProcess(options.serve) as gateway:
        await load.warm_up(gateway.url, options)
        # By then all users have come and listen.
        users = asyncio.create_task(
            run_window(
                load.habits_of(options, gateway.url),
                seconds=options.seconds,
                ramp=2.0,
                seed=options.seed,
                tongue=options.language,
                url=gateway.url,
                pid=gateway.pid,
            )
        )
        await asyncio.sleep(3.0)
        process = await asyncio.create_subprocess_exec(
            *(sampler, "record", "--subprocesses", "--nonblocking"),
            *("--rate", "200", "--duration", str(int(options.seconds - 5))),
            *("--output", str(options.out), "--pid", str(gateway.pid)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        await users
    if not options.out.is_file():
        raise GatewayError(f"py-spy failed:\n{said.decode()[-1500:]}")
    options.out.write_text(named(options.out.read_text()))


def named(chart: str) -> str:
    """A chart whose processes are called by what they are, not by command lines of this machine."""

    def name(match: re.Match[str]) -> str:
        return next(
            (called for part, called in _PROCESSES.items() if part in match[0]), "another process"
        )

    chart = _COMMAND.sub("fork server", _PROCESS.sub(name, chart))
    return _TITLE.sub("Gateway and engine", chart)


_PROCESSES = {"EngineCore": "language model", "forkserver": "fork server", "gateway.cli": "gateway"}
_TITLE = re.compile(r"(?<=>)[^<>]*py-spy record[^<>]*(?=<)")
_PROCESS = re.compile(r"process \d+:&quot;[^<]*?(?= \(\d|<)")
# The second line of a fork server's command.
_COMMAND = re.compile(r" ?main\(\d+, \d+, \[&apos;[^<]*?(?= \(\d|<)")


def main() -> int:
    arguments = argparse.ArgumentParser(
        prog="python -m bench.flame", description=(__doc__ or "").splitlines()[0]
    )
    load.add_arguments(arguments)
    arguments.set_defaults(seconds=25.0, think=0.0, barge_in=0.0, slow_readers=0.0)
    arguments.add_argument("--out", type=Path, default=Path("docs/benchmarks/flame-cpu.svg"))
    options = arguments.parse_args()
    try:
        uvloop.run(run(options))
    except GatewayError as error:
        print(error, file=sys.stderr)
        return 1
    print(options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
