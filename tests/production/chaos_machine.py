"""Faults of the machine under the gateway: clock, disk, memory, descriptors; and the restart of one
gateway after the other."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import httpx
from chaos_faults import engine_processes, fault
from chaos_stage import TEXT, Heard, Stage, settled
from processes import Gateway, gateway

from gateway.client import Audio, VoiceClient
from gateway.link import GatewayError
from gateway.protocol import TurnDone

_FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
_CLOCK = Path(tempfile.gettempdir()) / "voxgate-chaos-clock"
_MEMORY = Path("/sys/fs/cgroup/memory/voxgate-chaos")
_STEPS = ("+1d", "-400d", "+0", "+3600", "-1", "+0")
_SMALL_SHM = (
    "unshare",
    "--mount",
    "sh",
    "-c",
    'mount -t tmpfs -o size=2m tmpfs /dev/shm; exec "$@"',
    "sh",
)


@fault(
    "the clock on the wall jumps by a day, back by a year and more, on by an hour; four listen",
    needs=str(_FAKETIME),
    environment={
        "LD_PRELOAD": str(_FAKETIME),
        "FAKETIME_TIMESTAMP_FILE": str(_CLOCK),
        "FAKETIME_CACHE_DURATION": "1",
        # The kernel never lets this one jump.
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    },
)
async def clock_jumps(stage: Stage) -> None:
    dates = []
    stage.listen(4, turns=6)
    try:
        async with httpx.AsyncClient() as http:
            for step in _STEPS:
                _CLOCK.write_text(step)
                await asyncio.sleep(3)
                answer = await http.get(stage.server.url + "/health", timeout=10)
                assert answer.status_code == 200
                dates.append(answer.headers["date"])
        await stage.all_heard()
        await stage.recovered()
    finally:
        _CLOCK.unlink(missing_ok=True)
    # Or the clock of the gateway was never touched.
    assert len({date.split()[3] for date in dates}) > 1, dates
    stage.result.note = f"{len(_STEPS)} jumps"


@fault(
    "shared memory fills up; then the engine is killed, and there is room again only 5 s later",
    "--piece-retry-seconds",
    "120",
    expect="a clear code",
    scripted=False,
    needs="root",
    prefix=_SMALL_SHM,
)
async def shared_memory_full(stage: Stage) -> None:
    shm = Path(f"/proc/{stage.server.process.pid}/root/dev/shm")
    with contextlib.suppress(OSError), (shm / "full").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    assert shutil.disk_usage(shm).free == 0
    stage.listen(2, turns=2)
    await stage.all_heard()
    assert not stage.result.harmed, "a running engine needs no more of it"
    stage.listen(2, turns=2)
    await asyncio.sleep(3)
    for victim in engine_processes(stage):
        victim.kill()
    # Its locks lie there: it cannot start now, and is tried again.
    await asyncio.sleep(5)
    assert await stage.server.status("/health/ready") == 503
    (shm / "full").unlink()
    await stage.recovered()
    await stage.all_heard()


@contextlib.contextmanager
def _memory_limit(pids: list[int], mib: int) -> Iterator[None]:
    """New memory of these processes is limited: beyond it, the kernel's OOM killer comes."""
    _MEMORY.mkdir(exist_ok=True)
    (_MEMORY / "memory.limit_in_bytes").write_text(str(mib * 2**20))
    try:
        for pid in pids:
            (_MEMORY / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        (_MEMORY / "memory.limit_in_bytes").write_text("-1")
        _MEMORY.rmdir()


@fault(
    "the engine's process runs out of memory: the kernel's OOM killer ends it, in a cgroup",
    "--piece-retry-seconds",
    "60",
    expect="a clear code",
    scripted=False,
    needs="root",
)
async def engine_out_of_memory(stage: Stage) -> None:
    victims = [each.pid for each in engine_processes(stage)]
    assert victims, "no process of the engine was found"
    stage.listen(4, turns=3)
    await asyncio.sleep(2)
    begun = time.monotonic()
    with _memory_limit(victims, 1):
        async with asyncio.timeout(60):
            while await stage.server.status("/health/ready") == 200:
                await asyncio.sleep(0.1)
        stage.result.note = f"readiness 503 after {time.monotonic() - begun:.1f} s"
        kills = (_MEMORY / "memory.oom_control").read_text().split()
        assert int(kills[kills.index("oom_kill") + 1]) > 0
        await stage.recovered()
        await stage.all_heard()


@fault(
    "the engine's process is killed five times in a row, each time as soon as there is one",
    "--piece-retry-seconds",
    "120",
    expect="a clear code",
    scripted=False,
)
async def engine_crash_loop(stage: Stage) -> None:
    stage.listen(2, turns=2)
    await asyncio.sleep(2)
    killed: dict[int, float] = {}
    ready = 0.0
    async with asyncio.timeout(200):
        while len(killed) < 5:
            for victim in engine_processes(stage, named=True):
                if victim.pid not in killed:
                    killed[victim.pid] = time.monotonic()
                    victim.kill()
            if killed:
                await asyncio.sleep(0.1)
                if await stage.server.status("/health/ready") == 200:
                    ready = time.monotonic()
    times = list(killed.values())
    gaps = [later - at for at, later in pairwise(times)]
    stage.result.note = "started again after " + ", ".join(f"{gap:.1f}" for gap in gaps) + " s"
    # The answer of before the first one is kept for some seconds.
    assert ready < times[0] + 6, "ready without an engine"
    assert gaps[-1] > gaps[0] + 3, "no back-off"
    await stage.recovered()
    await stage.all_heard()


@fault(
    "the disk with the batch jobs is full; four listen",
    needs="root",
    disk="--jobs-dir",
    kib=512,
)
async def jobs_disk_full(stage: Stage) -> None:
    folder = Path(stage.result.note)
    stage.listen(4, turns=3)
    tasks = [{"text": TEXT * 2} for _ in range(8)]
    made: list[str] = []
    async with httpx.AsyncClient(base_url=stage.server.url, timeout=20) as http:
        for _ in range(200):
            answer = await http.post("/batch_tts", json={"tasks": tasks, "format": "wav"})
            if answer.status_code != 202:
                break
            made.append(answer.json()["job_id"])
        assert (answer.status_code, answer.json()["code"]) == (507, "storage_full"), answer.text
        await stage.all_heard()
        assert await stage.server.status("/health/ready") == 200
        # Audio waits for room with its task; as soon as there is some, all goes on by itself.
        process = await asyncio.create_subprocess_exec(
            "mount", "-o", "remount,size=1g", str(folder)
        )
        assert await process.wait() == 0
        begun = time.monotonic()
        async with asyncio.timeout(120):
            while True:
                job = (await http.get(f"/batch_tts/{made[0]}")).json()
                if job["status"] not in ("queued", "running"):
                    break
                await asyncio.sleep(0.2)
        assert job["status"] == "done", job
        answer = await http.post("/batch_tts", json={"tasks": tasks[:1], "format": "wav"})
        assert answer.status_code == 202
        for id in made:
            await http.delete(f"/batch_tts/{id}")
    stage.result.recovery_seconds = round(time.monotonic() - begun, 2)
    stage.result.note = f"{len(made)} jobs on 512 KiB, then 507 `storage_full`; all went on later"


@fault(
    "300 file descriptors, all of them taken, and no limit of connections; 4 listen",
    descriptors=300,
    guarded=False,
)
async def descriptors_gone(stage: Stage) -> None:
    stage.listen(4, turns=3)
    await asyncio.sleep(0.5)
    held = []
    for _ in range(400):
        with contextlib.suppress(OSError):
            held.append(await asyncio.open_connection("127.0.0.1", stage.server.port))
    await asyncio.sleep(1)
    most = stage.open_descriptors()
    await stage.all_heard()
    for _, writer in held:
        writer.transport.abort()
    await stage.recovered()
    await settled(stage, sessions=0)
    stage.result.note = f"{most} of 300 descriptors open"


async def _through(gateways: list[Gateway], turns: int) -> Heard:
    """A client that speaks turn after turn, and goes elsewhere when it is told to: a turn that
    cannot begin here begins there, one that was begun is heard to its end."""
    heard = Heard()
    at = 0
    while heard.turns < turns:
        try:
            async with VoiceClient(gateways[at].url, reconnect=True) as client:
                expected = 0
                while heard.turns < turns:
                    async for event in client.speak(TEXT):
                        if isinstance(event, Audio):
                            heard.packets += 1
                            heard.lost_packets += abs(event.sequence - expected)
                            expected = event.sequence + 1
                        elif isinstance(event, TurnDone):
                            heard.turns += 1
                            heard.failed_pieces += event.failed
        except GatewayError as failure:
            if failure.code not in ("draining", "session_ending", "unreachable"):
                heard.code = failure.code
                return heard
            heard.resumes += 1
            at = 1 - at
            await asyncio.sleep(0.05)
    return heard


@fault(
    "two gateways are restarted one after the other (SIGTERM) under load; eight speak on",
    "--drain-seconds",
    "30",
)
async def rolling_restart(stage: Stage) -> None:
    ends: list[int] = []
    async with contextlib.AsyncExitStack() as stack:
        arguments = ("--capacity-share", "0", "--drain-seconds", "30")
        gateways = [stage.server, await stack.enter_async_context(gateway(*arguments, quiet=True))]
        talks = [asyncio.create_task(_through(gateways, 12)) for _ in range(8)]
        begun = time.monotonic()
        for number, old in enumerate(list(gateways)):
            await asyncio.sleep(4)
            old.signal(signal.SIGTERM)
            async with asyncio.timeout(60):
                ends.append(await old.process.wait())
            gateways[number] = await stack.enter_async_context(
                gateway(*arguments, port=old.port, quiet=True)
            )
        took = time.monotonic() - begun
        assert not all(talk.done() for talk in talks), "nobody spoke while it went on"
        heard = await asyncio.gather(*talks)
        stage.count(heard)
        stage.server = gateways[0]
        await stage.recovered()
    assert ends == [0, 0]
    assert all(each.turns == 12 for each in heard)
    moved = sum(each.resumes for each in heard)
    stage.result.note = f"both exit with 0 within {took:.0f} s; {moved} moves to the other one"
    assert moved >= 8
