"""How many live streams the engine can carry: measured while it speaks, whatever slows it down.

While `n` pieces are made at once, the engine makes `x` seconds of audio a second, and the lead of
each listener grows by `x / n - 1` a second. A second of audio for all takes `n / x = a + b n`
seconds: a step of the model costs something by itself and something for each piece in it. Listeners
run dry from the `n` on at which that is 1. `a` and `b` are fitted to what was seen lately, at the
numbers that came up by themselves, so the limit is known before it is reached.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path

from engine.api import (
    OFFLINE,
    SAMPLE_RATE,
    AudioChunk,
    EngineLimits,
    EngineStats,
    Progress,
    SpeechRequest,
    Synthesizer,
    Voice,
)
from gateway.failures import BLAMELESS, Failures

_MEMORY_SECONDS = 30.0
"""Of work, after which a sample counts a third: machines have slow hours and loud neighbours."""
_PRIOR_SECONDS = 0.1
_PRIOR_RATIO = 4.0
"""Until samples at several `n` say otherwise, `a` counts as four times `b`, which is cautious: it
is 11 with the embedded voice on two cores, 49 on an H200. A tenth of a second outweighs it."""
_LEAST_WORK_SECONDS = 0.05
"""Work in a sample below which it says nothing."""
_REST_SECONDS = 1.5
"""A listener with more than this in hand does not notice that their piece rests."""
_GROWTH, _START = 2.0, 2.0
"""At most so many times the audio a second ever seen, and so many streams more, are believed."""
_PEAK_SECONDS = 600.0


class _Flight:
    """One piece in the engine."""

    __slots__ = ("among", "began", "dry_at", "first_at", "made", "over")

    def __init__(self, dry_at: float, now: float) -> None:
        self.began = now
        self.dry_at = dry_at
        """When its listener ran dry, were it not for this piece."""
        self.first_at: float | None = None
        self.made = 0
        """Samples since the last look,"""
        self.among = 0
        """and the same times the pieces in the engine then."""
        self.over: float | None = None

    def hand_out(self, samples: int, among: int, now: float) -> None:
        if self.first_at is None:
            self.first_at = now
            self.dry_at = max(self.dry_at, now)
        self.made += samples
        self.among += samples * among
        self.dry_at += samples / SAMPLE_RATE

    def rests(self, now: float) -> bool:
        """Nothing came, and nobody minds."""
        return self.first_at is not None and not self.made and self.dry_at - now > _REST_SECONDS


class Supply:
    """`begin` and `end` pieces and `look` now and then; `capacity` is the streams it carries."""

    def __init__(self) -> None:
        self._flights: set[_Flight] = set()
        self._over: list[_Flight] = []
        self._looked_at: float | None = None
        self._resting = self._steps = self._frames = 0
        self._seconds = self._xx = self._xv = self._vv = self._nx = self._nv = 0.0
        self._peak = 0.0

    def begin(self, request: SpeechRequest, now: float) -> _Flight | None:
        """A piece goes into the engine; None for one nobody listens to live."""
        if request.priority >= OFFLINE:
            return None
        flight = _Flight(max(now, request.priority / 1000), now)
        self._flights.add(flight)
        if self._looked_at is None:
            self._looked_at = now
        return flight

    def made(self, flight: _Flight, samples: int, now: float) -> None:
        """Audio of a piece is there."""
        flight.hand_out(samples, len(self._flights) - self._resting, now)

    def end(self, flight: _Flight, now: float) -> None:
        """It is over, or was cancelled."""
        self._flights.discard(flight)
        flight.over = now
        self._over.append(flight)

    def look(self, stats: EngineStats, now: float) -> None:
        """Take in what happened since the last look."""
        steps, frames = stats.steps - self._steps, stats.frames - self._frames
        self._steps, self._frames = stats.steps, stats.frames
        since, self._looked_at = self._looked_at, now
        over, self._over = self._over, []
        working = [flight for flight in self._flights if not flight.rests(now)]
        self._resting = len(self._flights) - len(working)
        counted = [*over, *working]
        made = sum(flight.made for flight in counted) / SAMPLE_RATE
        among = sum(flight.among for flight in counted) / SAMPLE_RATE
        for flight in counted:
            flight.made = flight.among = 0
        if since is None or now <= since:
            return
        spans = [
            (max(since, flight.began), now if flight.over is None else flight.over)
            for flight in counted
        ]
        work = _covered(spans)
        if work < _LEAST_WORK_SECONDS or not made:
            return
        x = made / work
        if steps > 0 and frames > 0:
            # The engine knows best who rested.
            n = frames / steps
            self._add(work, n, x, n * x)
        else:
            n = sum(end - start for start, end in spans) / work
            self._add(work, n, x, among / work)

    def _add(self, seconds: float, n: float, x: float, v: float) -> None:
        """`n` pieces made `x` seconds of audio a second, `v` of `n x` on average."""
        keep = math.exp(-seconds / _MEMORY_SECONDS)
        self._seconds = self._seconds * keep + seconds
        self._xx = self._xx * keep + seconds * x * x
        self._xv = self._xv * keep + seconds * x * v
        self._vv = self._vv * keep + seconds * v * v
        self._nx = self._nx * keep + seconds * n * x
        self._nv = self._nv * keep + seconds * n * v
        self._peak = max(x, self._peak * math.exp(-seconds / _PEAK_SECONDS))

    @property
    def seconds(self) -> float:
        """Of work that was seen, late work counting more."""
        return self._seconds

    def cost(self) -> tuple[float, float]:
        """`a` and `b` of `n = a x + b n x`, in seconds a second."""
        prior = _PRIOR_SECONDS * self._xx / self._seconds
        xx, xv = self._xx + prior, self._xv - prior * _PRIOR_RATIO
        vv = self._vv + prior * _PRIOR_RATIO**2
        determinant = xx * vv - xv * xv
        a = (self._nx * vv - self._nv * xv) / determinant
        b = (self._nv * xx - self._nx * xv) / determinant
        if a < 0.0:
            return 0.0, self._nv / self._vv
        if b < 0.0:
            return self._nx / self._xx, 0.0
        return a, b

    @property
    def capacity(self) -> float:
        """Streams at once whose leads do not shrink; infinite before anything was measured."""
        if not self._seconds:
            return math.inf
        a, b = self.cost()
        believed = _GROWTH * self._peak + _START
        if a >= 1.0:
            return 0.0
        return min(believed, (1.0 - a) / b) if b else believed


def _covered(spans: Sequence[tuple[float, float]]) -> float:
    """Seconds in at least one of the spans."""
    seconds, reached = 0.0, -math.inf
    for start, end in sorted(spans):
        seconds += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return seconds


class MeteredSynthesizer:
    """An engine whose every piece is counted, whoever asks for it."""

    def __init__(
        self,
        synthesizer: Synthesizer,
        supply: Supply,
        clock: Callable[[], float] = time.monotonic,
        failures: Failures | None = None,
    ) -> None:
        self._synthesizer = synthesizer
        self._supply = supply
        self._clock = clock
        self._failures = failures or Failures(0.0, clock)

    async def start(self, progress: Progress | None = None) -> None:
        await self._synthesizer.start(progress)

    async def close(self) -> None:
        await self._synthesizer.close()

    def voices(self) -> Sequence[Voice]:
        return self._synthesizer.voices()

    def voice_files(self) -> Sequence[Path]:
        return self._synthesizer.voice_files()

    async def reload_voices(self) -> None:
        await self._synthesizer.reload_voices()

    @property
    def limits(self) -> EngineLimits:
        return self._synthesizer.limits

    def stats(self) -> EngineStats:
        return self._synthesizer.stats()

    async def speak(self, request: SpeechRequest) -> AsyncGenerator[AudioChunk, None]:
        """See `engine.api.Synthesizer.speak`."""
        flight = self._supply.begin(request, self._clock())
        try:
            async with contextlib.aclosing(self._synthesizer.speak(request)) as stream:
                async for chunk in stream:
                    if flight is not None:
                        self._supply.made(flight, chunk.pcm.size, self._clock())
                    if chunk.final and flight is not None:
                        # Its reader may take a while to come back.
                        self._supply.end(flight, self._clock())
                        flight = None
                    if chunk.final:
                        self._failures.note(failed=False)
                    yield chunk
        except Exception as failure:
            if getattr(failure, "code", None) not in BLAMELESS:
                self._failures.note(failed=True)
            raise
        finally:
            if flight is not None:
                self._supply.end(flight, self._clock())
