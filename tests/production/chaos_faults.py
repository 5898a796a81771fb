"""The faults of chaos.py."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil
from chaos_soak import churn
from chaos_stage import UPGRADE, Heard, Stage, drip, frame, listen, metric, read_slowly, settled
from lossy import NAMESPACE, SERVER
from processes import gateway

sys.path.insert(0, str(Path(__file__).parents[1] / "gateway"))

from cutting_proxy import CuttingProxy

Fault = Callable[[Stage], Awaitable[None]]
FAULTS: dict[str, tuple[Fault, dict[str, Any]]] = {}


def fault(what: str, *arguments: str, expect: str = "nobody harmed", **options: Any) -> Any:
    """Register a fault. `arguments`: of its gateway; `expect`: what has to hold at the end."""

    def register(function: Fault) -> Fault:
        name = function.__name__.replace("_", "-")
        FAULTS[name] = (
            function,
            {"what": what, "arguments": arguments, "expect": expect, **options},
        )
        return function

    return register


def engine_processes(stage: Stage, *, named: bool = False) -> list[psutil.Process]:
    """The vLLM processes of the gateway. `named`: only those that have their name already."""
    found: list[psutil.Process] = []
    large: list[psutil.Process] = []
    for each in psutil.Process(stage.server.process.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if "EngineCore" in " ".join(each.cmdline() or [each.name()]):
                found.append(each)
            elif each.memory_info().rss > 200 * 2**20:
                large.append(each)
    return found if found or named else large


@fault(
    "the engine's process is killed while four listen; pieces are tried again for 60 s",
    "--piece-retry-seconds",
    "60",
    expect="a clear code",
    scripted=False,
)
async def engine_sigkill(stage: Stage) -> None:
    stage.listen(4, turns=3)
    await asyncio.sleep(4)
    victims = engine_processes(stage)
    assert victims, "no process of the engine was found"
    for victim in victims:
        victim.kill()
    await stage.recovered()
    await stage.all_heard()


@fault(
    "the engine's process is stopped (SIGSTOP) until the watchdog ends it; tried again for 5 s",
    expect="a clear code",
    scripted=False,
)
async def engine_sigstop(stage: Stage) -> None:
    stage.listen(2, turns=2)
    await asyncio.sleep(4)
    victims = engine_processes(stage)
    assert victims, "no process of the engine was found"
    for victim in victims:
        victim.suspend()
    # It would be cheating to look away: readiness has to say so by itself.
    begun = time.monotonic()
    while await stage.server.status("/health/ready") == 200:
        assert time.monotonic() - begun < 60, "readiness did not notice"
        await asyncio.sleep(0.2)
    stage.result.note = f"readiness 503 after {time.monotonic() - begun:.1f} s"
    await stage.recovered()
    await stage.all_heard()
    async with asyncio.timeout(15):
        # Its answer is kept for some seconds.
        while await stage.server.status("/health/ready") != 200:
            await asyncio.sleep(0.2)


@fault("the gateway is killed while eight listen", expect="a clear code")
async def gateway_sigkill(stage: Stage) -> None:
    stage.listen(8, turns=4)
    await asyncio.sleep(1)
    os.killpg(stage.server.process.pid, signal.SIGKILL)
    await stage.server.process.wait()
    async with gateway("--capacity-share", "0", port=stage.server.port, quiet=True) as again:
        stage.server = again
        await stage.recovered()
        heard = await stage.all_heard()
        assert {each.code for each in heard} <= {"unknown_session"}
        stage.result.note = "a gateway of its own starts again on the port"


@fault("sockets are cut within a frame, every few kilobytes, for eight listeners")
async def socket_cut_mid_frame(stage: Stage) -> None:
    drawn = random.Random(7)
    for _ in range(8):
        cuts = iter([drawn.randrange(2_000, 20_000) for _ in range(4)])
        proxy = CuttingProxy(stage.server.port, cuts)
        place = proxy.run()
        url = await place.__aenter__()
        stage.listen(1, turns=2, url=url)
        stage.listeners[-1].add_done_callback(
            lambda _, place=place: asyncio.ensure_future(place.__aexit__(None, None, None))
        )
    await stage.all_heard()
    assert stage.result.resumes >= 8


@fault(
    "40 peers open a WebSocket and are never heard of again; 4 listen",
    "--start-timeout-seconds",
    "3",
)
async def half_open_peers(stage: Stage) -> None:
    writers = []
    for _ in range(40):
        reader, writer = await asyncio.open_connection("127.0.0.1", stage.server.port)
        writer.write(UPGRADE)
        await reader.readuntil(b"\r\n\r\n")
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        writers.append(writer)
    stage.listen(4)
    await stage.all_heard()
    await settled(stage, sessions=0)
    for writer in writers:
        writer.transport.abort()


@fault(
    "20 readers take one byte a second; 4 listen",
    "--stall-limit-seconds",
    "3",
    "--resume-seconds",
    "1",
)
async def one_byte_readers(stage: Stage) -> None:
    slow = [asyncio.create_task(read_slowly(stage.server.port)) for _ in range(20)]
    await asyncio.sleep(0.5)
    stage.listen(4)
    await stage.all_heard()
    await settled(stage, sessions=0)
    for task in slow:
        task.cancel()
    await asyncio.gather(*slow, return_exceptions=True)


@fault(
    "20 writers send one byte a second, as heads, bodies and frames; 4 listen",
    "--handshake-timeout-seconds",
    "3",
    "--body-timeout-seconds",
    "3",
    "--start-timeout-seconds",
    "3",
)
async def one_byte_writers(stage: Stage) -> None:
    heads = [
        b"GET /health HTTP/1.1\r\nX: ",
        b"POST /tts HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n",
        UPGRADE,
    ]
    slow = [asyncio.create_task(drip(stage.server.port, heads[i % 3])) for i in range(20)]
    stage.listen(4)
    await stage.all_heard()
    ended = await asyncio.wait_for(asyncio.gather(*slow), 30)
    stage.result.note = f"the last of them was closed after {max(ended):.1f} s"


@fault("the disk with the recordings is full", needs="root", disk="--record-dir", kib=64)
async def disk_full(stage: Stage) -> None:
    stage.listen(6, turns=2)
    await stage.all_heard()
    folder = Path(stage.result.note)
    stage.result.note = f"{len(list(folder.glob('*.jsonl')))} recordings begun on 64 KiB"


@fault(
    "300 file descriptors for 400 connections; 4 listen", expect="nobody harmed", descriptors=300
)
async def descriptors_exhausted(stage: Stage) -> None:
    stage.listen(4, turns=3)
    await asyncio.sleep(0.5)
    held = []
    for _ in range(400):
        with contextlib.suppress(OSError):
            held.append(await asyncio.open_connection("127.0.0.1", stage.server.port))
    await asyncio.sleep(1)
    await stage.all_heard()
    for _, writer in held:
        writer.transport.abort()
    await stage.recovered()


@fault("clients connect, ask for speech and vanish; 4 listen")
async def connect_and_vanish(stage: Stage) -> None:
    count = 10_000 if stage.full else 1_000
    stage.listen(4, turns=4)
    before = stage.open_descriptors(), stage.memory()
    gate = asyncio.Semaphore(20)
    drawn = random.Random(3)

    async def vanish() -> None:
        async with gate:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                reader, writer = await asyncio.open_connection("127.0.0.1", stage.server.port)
                how = drawn.random()
                if how > 0.1:
                    writer.write(UPGRADE)
                if how > 0.3:
                    await reader.readuntil(b"\r\n\r\n")
                    writer.write(frame('{"type":"session.start"}'))
                if how > 0.5:
                    writer.write(frame('{"type":"text.append","text":"Somebody who is gone. "}'))
                    await reader.read(1)
                writer.transport.abort()

    await asyncio.gather(*(vanish() for _ in range(count)))
    await stage.all_heard()
    await settled(stage, sessions=0)
    stage.result.descriptor_growth = stage.open_descriptors() - before[0]
    stage.result.memory_growth_mib = round(stage.memory() - before[1], 1)
    stage.result.note = f"{count:,} of them"
    assert stage.result.descriptor_growth <= 5
    assert stage.result.memory_growth_mib < 60


@fault(
    "three times as many listeners as can be carried, on the real engine",
    expect="refused or not harmed",
    share="0.85",
    scripted=False,
)
async def overload(stage: Stage) -> None:
    seconds = 600 if stage.full else 20
    end = time.monotonic() + seconds
    refused = served = 0
    underruns = await metric(stage, "voxgate_underruns_total")

    stage.listen(4, turns=2)
    await asyncio.sleep(5)

    async def insist() -> None:
        nonlocal refused, served
        while time.monotonic() < end:
            heard = await listen(stage.server.url, 1)
            if heard.code == "capacity":
                refused += 1
                await asyncio.sleep(0.5)
            else:
                served += 1
                stage.result.harmed += heard.harmed
                stage.result.packets += heard.packets

    await asyncio.gather(*(insist() for _ in range(24)))
    await stage.all_heard()
    stage.result.sessions += served
    underruns = await metric(stage, "voxgate_underruns_total") - underruns
    stage.result.note = (
        f"{seconds} s: {served} served, {refused} refused, {underruns:.0f} underruns"
    )
    assert refused
    assert served


@fault(
    "an hour of two listeners at a time, who listen, cancel, are cut off and vanish, on the real "
    "engine",
    "--piece-retry-seconds",
    "60",
    scripted=False,
)
async def soak(stage: Stage) -> None:
    seconds = 3600.0 if stage.full else 60.0
    series = os.environ.get("VOXGATE_SOAK_SERIES")
    weights = await churn(stage, seconds=seconds, lanes=2, series=series)
    result = stage.result
    result.weights = weights.rows
    result.memory_growth_mib = weights.growth("gateway_mib")
    result.descriptor_growth = int(weights.growth("descriptors"))
    engine = f"engine {weights.growth('engine_mib'):+g} MiB"
    result.note = f"{seconds:.0f} s; {engine}; {len(weights.refused)} refused at first"
    assert abs(result.descriptor_growth) <= 10
    if stage.full:
        assert result.memory_growth_mib + weights.growth("engine_mib") < 60


@fault(
    "300 ms, 5% loss and reordering between a listener and the gateway", needs="root", lossy=True
)
async def lossy_link(stage: Stage) -> None:
    script = str(Path(__file__).with_name("chaos.py"))
    command = ["ip", "netns", "exec", NAMESPACE, sys.executable, script, "--listen"]
    server = f"http://{SERVER}:{stage.server.port}"
    runs = [
        await asyncio.create_subprocess_exec(*command, server, stdout=asyncio.subprocess.PIPE)
        for _ in range(4)
    ]
    for run in runs:
        out, _ = await asyncio.wait_for(run.communicate(), 240)
        heard = Heard(**json.loads(out))
        stage.result.sessions += 1
        stage.result.harmed += heard.harmed
        stage.result.packets += heard.packets
        stage.result.packets_lost += heard.lost_packets
        stage.result.resumes += heard.resumes
        if heard.code:
            stage.result.harmed_codes.append(heard.code)
