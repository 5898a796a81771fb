"""A long time of listeners who come and go in every way, and what the processes weigh meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
from chaos_stage import TEXT, Heard, Stage, listen, settled
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from gateway.client import VoiceClient
from gateway.link import GatewayError

sys.path.insert(0, str(Path(__file__).parents[1] / "gateway"))

from cutting_proxy import CuttingProxy

_EVERY_SECONDS = 20.0
_WARM = 1 / 4
"""The share of the time in which processes still gather what they keep: caches, arenas, the
captions of sessions that are over."""
_SENTENCE = "The next sentence is as long as this one, and says nothing new. "
MANDARIN = "第一句话足够长，可以听几秒钟。然后是第二句，没有什么新内容。"


@dataclass
class Weights:
    """Memory (MiB) and descriptors of all processes of a gateway, over time."""

    rows: list[dict[str, float]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """Why listeners were not let in, who came again a second later."""

    def weigh(self, pid: int, sessions: int, seconds: float) -> None:
        gateway = psutil.Process(pid)
        engine = 0.0
        for child in gateway.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                engine += child.memory_info().rss
        self.rows.append(
            {
                "seconds": round(seconds, 1),
                "sessions": sessions,
                "gateway_mib": round(gateway.memory_info().rss / 2**20, 1),
                "engine_mib": round(engine / 2**20, 1),
                "descriptors": gateway.num_fds(),
                "threads": gateway.num_threads(),
            }
        )

    def growth(self, name: str) -> float:
        """From the first quarter's end to the last quarter, medians of each."""
        count = len(self.rows)
        early = self.rows[int(count * _WARM) : int(count * 2 * _WARM)] or self.rows[:1]
        late = self.rows[int(count * (1 - _WARM)) :]
        medians = [statistics.median(row[name] for row in rows) for rows in (early, late)]
        return round(medians[1] - medians[0], 1)


async def _changes_its_mind(url: str, drawn: random.Random) -> Heard:
    """Cancels in the middle, and says something else."""
    with contextlib.suppress(GatewayError):
        async with VoiceClient(url, format=drawn.choice(("opus", "pcm_s16le", "mulaw"))) as client:
            for _ in range(2):
                turn = client.speak(TEXT * 3)
                for _ in range(drawn.randrange(5, 200)):
                    await anext(turn)
                await turn.aclose()
    return Heard()


async def _vanishes(url: str, drawn: random.Random) -> Heard:
    """Is gone in the middle; the session waits for it in vain."""
    stream = url.replace("http", "ws", 1) + "/v1/stream"
    with contextlib.suppress(ConnectionClosed, InvalidStatus):
        async with connect(stream, compression=None) as peer:
            await peer.send('{"type": "session.start", "resume": true}')
            await peer.send(json.dumps({"type": "text.append", "text": TEXT}))
            for _ in range(drawn.randrange(1, 100)):
                await peer.recv()
            peer.transport.abort()
    return Heard()


async def _is_cut_off(url: str, drawn: random.Random) -> Heard:
    """Loses its connection within a frame, comes back, and hears everything."""
    cuts = iter([drawn.randrange(2_000, 20_000) for _ in range(3)])
    async with CuttingProxy(int(url.rpartition(":")[2]), cuts).run() as proxy:
        return await listen(proxy, 2)


async def _listens(url: str, drawn: random.Random) -> Heard:
    text = drawn.choice((TEXT, TEXT, MANDARIN, _SENTENCE * drawn.randrange(2, 25)))
    return await listen(url, drawn.randrange(1, 4), text=text)


_KINDS: tuple[Callable[[str, random.Random], Any], ...] = (
    _listens,
    _listens,
    _is_cut_off,
    _changes_its_mind,
    _vanishes,
)


async def churn(stage: Stage, *, seconds: float, lanes: int, series: str | None) -> Weights:
    """`lanes` listeners at any time. `series`: where the weights go while they are taken."""
    weights = Weights()
    begun = time.monotonic()
    end = begun + seconds
    count = 0
    refused = weights.refused

    async def lane(number: int) -> None:
        nonlocal count
        drawn = random.Random(number)
        while time.monotonic() < end:
            heard = await drawn.choice(_KINDS)(stage.server.url, drawn)
            count += 1
            if heard.code and not heard.packets:
                refused.append(heard.code)
                await asyncio.sleep(1)
                continue
            stage.count([heard])

    async def watch() -> None:
        while True:
            weights.weigh(stage.server.process.pid, count, time.monotonic() - begun)
            if series:
                counts = {**asdict(stage.result), "weights": weights.rows}
                Path(series).write_text(json.dumps({**counts, "note": f"{len(refused)} refused"}))
            await asyncio.sleep(min(_EVERY_SECONDS, seconds / 20))

    watching = asyncio.create_task(watch())
    await asyncio.gather(*(lane(number) for number in range(lanes)))
    await settled(stage, sessions=0)
    watching.cancel()
    return weights
