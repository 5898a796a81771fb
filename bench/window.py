"""One measured window: users who come, talk and listen, and the numbers of it."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

from rich.progress import Progress

from bench import machine
from bench.arrivals import poisson_starts
from bench.gpu_sampling import GpuSampler
from bench.player import SAMPLE_RATE
from bench.scrape import Counters, scrape
from bench.stats import rounded, summary
from bench.texts import sentences
from bench.user import Habits, User

ANSWER_SECONDS = 10.0
"""How long after the window a turn that was not answered yet is waited for."""
LOOK_SECONDS = 0.5


class Window:
    """One measured window: users, and what was seen of the gateway while they were there."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.users: list[User] = []
        self.leads: list[float] = []
        self.playing: list[int] = []
        self.timeline: list[dict[str, float | None]] = []
        """Every look: seconds, users playing, and the least lead among them."""
        self.own_cpu_seconds = 0.0
        self.gateway_cpu_seconds: float | None = None
        self.gateway_memory_bytes: int | None = None
        self.counters: Counters | None = None
        self.gpu: dict[str, float] | None = None


async def run_window(
    habits: Sequence[Habits],
    *,
    seconds: float,
    ramp: float,
    seed: int,
    tongue: str,
    url: str,
    pid: int | None,
    progress: Progress | None = None,
    make_user: Callable[[Habits, Iterator[str], random.Random, float], User] = User,
) -> Window:
    """Let one user of each habits live for `seconds`; all have arrived after `ramp` seconds."""
    rng = random.Random(seed)
    texts = sentences(tongue, random.Random(seed))
    window = Window(seconds)
    before = await scrape(url)
    used = machine.usage(pid) if pid is not None else None
    own = time.process_time()
    began = time.perf_counter()
    window.users = [
        make_user(each, texts, random.Random(rng.random()), began + seconds) for each in habits
    ]
    starts = poisson_starts(len(habits), ramp, rng)
    tasks = [
        asyncio.create_task(user.live(start))
        for user, start in zip(window.users, starts, strict=True)
    ]
    try:
        # Of this machine: a gateway elsewhere has its GPU elsewhere too.
        with GpuSampler() if pid is not None else nullcontext() as sampler:
            await _watch(window, tasks, began, progress)
        if sampler is not None:
            window.gpu = sampler.between(began, time.perf_counter())
        window.own_cpu_seconds = time.process_time() - own
        if pid is not None and used is not None:
            now = machine.usage(pid)
            window.gateway_cpu_seconds = now.cpu_seconds - used.cpu_seconds
            window.gateway_memory_bytes = now.memory_bytes
        after = await scrape(url)
        if before is not None and after is not None:
            window.counters = after - before
        for user, task in zip(window.users, tasks, strict=True):
            if user.close_window(began + seconds):
                task.cancel()
        await asyncio.wait(tasks, timeout=ANSWER_SECONDS)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return window


async def _watch(
    window: Window, tasks: Sequence[asyncio.Task[None]], began: float, progress: Progress | None
) -> None:
    """Look at every user now and then until the window ends or all have left."""
    bar = progress.add_task("", total=window.seconds) if progress is not None else None
    for look in itertools.count(1):
        ahead = min(began + window.seconds, began + look * LOOK_SECONDS) - time.perf_counter()
        if ahead > 0:
            await asyncio.sleep(ahead)
        passed = time.perf_counter() - began
        if passed >= window.seconds or all(task.done() for task in tasks):
            window.seconds = min(window.seconds, passed)
            return
        window.playing.append(sum(user.playing for user in window.users))
        leads = [lead for user in window.users if (lead := user.lead) is not None]
        window.leads += leads
        window.timeline.append(
            {
                "s": rounded(passed),
                "playing": window.playing[-1],
                "least_lead_s": rounded(min(leads)) if leads else None,
            }
        )
        if progress is not None and bar is not None:
            dry = sum(any(turn.player.gaps for turn in user.turns) for user in window.users)
            what = f"{window.playing[-1]} of {len(window.users)} listening, {dry} ran dry"
            progress.update(bar, completed=passed, description=what)


def result_of(window: Window, price: float | None = None) -> dict[str, Any]:
    """The numbers of one window, as they go into the JSON report. `price`: of a machine hour."""
    users = window.users
    turns = [turn for user in users for turn in user.turns]
    audio = sum(user.samples for user in users) / SAMPLE_RATE
    gaps = [gap for turn in turns for gap in turn.player.gaps]
    errors = Counter(code for user in users for code in user.errors)
    cpu, own = window.gateway_cpu_seconds, window.own_cpu_seconds
    memory = window.gateway_memory_bytes
    counters = window.counters
    speed = audio / window.seconds
    return {
        "streams": len(users),
        "first_packet_ms": _latencies([turn.first_packet for turn in turns]),
        "first_audible_ms": _latencies([turn.first_audible for turn in turns]),
        "first_sound_ms": _latencies([turn.first_sound for turn in turns]),
        "gapless_share": rounded(sum(user.gapless for user in users) / len(users)),
        "gaps": {
            "streams": sum(any(turn.player.gaps for turn in user.turns) for user in users),
            "count": len(gaps),
            "ms": summary(gaps, scale=1000),
        },
        "turns": len(turns),
        "unanswered": sum(not turn.answered for turn in turns),
        "errors": dict(errors),
        "lead_s": summary(window.leads),
        "playing_at_once": summary(window.playing),
        "timeline": window.timeline,
        "seconds": rounded(window.seconds),
        "audio_seconds": rounded(audio),
        "audio_seconds_per_second": rounded(speed),
        "frames_per_second": rounded(counters.frames / window.seconds) if counters else None,
        "frames_per_step": (
            rounded(counters.frames / counters.steps) if counters and counters.steps else None
        ),
        "cancel_ms": _latencies([turn.cancel for turn in turns]),
        "slots_freed": counters.slots_freed() if counters is not None else None,
        "machine_hours_per_speech_hour": rounded(1 / speed) if speed else None,
        "cost_per_speech_hour": rounded(price / speed) if speed and price is not None else None,
        "cpu_seconds_per_audio_second": rounded(cpu / audio) if cpu and audio else None,
        "gateway_cpu_cores": rounded(cpu / window.seconds) if cpu else None,
        "gateway_memory_mib": rounded(memory / 2**20) if memory else None,
        "load_generator_cpu_cores": rounded(own / window.seconds),
        "prefix_cache": counters.prefix_cache() if counters is not None else None,
        "preemptions": counters.preemptions if counters is not None else None,
        "gpu": window.gpu,
    }


def _latencies(values: Sequence[float | None]) -> dict[str, float | int | None]:
    return summary([value for value in values if value is not None], scale=1000)
