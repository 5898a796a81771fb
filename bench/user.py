"""One simulated user: a session that speaks turn after turn, listens in real time, and thinks."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field

from bench.arrivals import token_times
from bench.audible import SAMPLE_RATE, OnsetFinder
from bench.texts import tokens
from bench.turns import Turn
from gateway.client import Audio, GatewayError, VoiceClient
from gateway.protocol import Caption, Error, TurnCancelled, TurnDone

_INTERRUPTS_AFTER = (0.3, 3.0)
"""Seconds of a turn that are heard before somebody speaks over it."""


@dataclass(frozen=True, slots=True)
class Habits:
    """How a user behaves.

    `tokens_per_second` None sends whole turns at once; else the text comes as a language model
    writes it. `think_seconds` is the mean of the exponential pause between turns. A turn has one to
    `turn_sentences` sentences. `turns`: leave after so many; None stays until the window ends.
    `barge_in_share` of the turns are interrupted. `reads_at`: packets are taken so many times
    faster than they play; None takes them as they come.
    """

    url: str
    voice: str = "default"
    tokens_per_second: float | None = None
    think_seconds: float = 1.0
    turn_sentences: int = 3
    turns: int | None = None
    barge_in_share: float = 0.0
    reads_at: float | None = None


@dataclass(slots=True)
class User:
    """A user and what became of each of their turns."""

    habits: Habits
    texts: Iterator[str]
    rng: random.Random
    ends_at: float
    """`time.perf_counter` at which the window ends."""
    turns: list[Turn] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """Codes of the errors met."""
    retry_after_ms: int | None = None
    """When a server that refused wants to be asked again."""
    samples: int = 0
    """Received within the window."""

    async def live(self, starts_in: float) -> None:
        """Arrive, talk until the window ends, leave. Trouble ends up in `errors`."""
        await asyncio.sleep(starts_in)
        try:
            async with VoiceClient(self.habits.url, voice=self.habits.voice) as client:
                while time.perf_counter() < self.ends_at:
                    turn = Turn(OnsetFinder())
                    self.turns.append(turn)
                    await self._hear(client, turn)
                    if len(self.turns) == self.habits.turns:
                        return
                    playing = turn.player.runs_dry_at - time.perf_counter()
                    thinking = self.rng.expovariate(1.0) * self.habits.think_seconds
                    await asyncio.sleep(max(0.0, playing) + thinking)
        except GatewayError as failure:
            self.errors.append(failure.code)
            self.retry_after_ms = failure.retry_after_ms

    async def _hear(self, client: VoiceClient, turn: Turn) -> None:
        interrupts_after: float | None = None
        if self.rng.random() < self.habits.barge_in_share:
            interrupts_after = self.rng.uniform(*_INTERRUPTS_AFTER)
        barging_in: asyncio.Task[None] | None = None
        try:
            async with aclosing(client.speak(self._write(turn))) as events:
                async for event in events:
                    if isinstance(event, Audio):
                        turn.audio(event.at, event.samples, event.payload)
                        if event.at <= self.ends_at:
                            self.samples += event.samples
                        elif turn.heard:
                            return
                        if interrupts_after is not None and barging_in is None:
                            barging_in = asyncio.create_task(
                                self._barge_in(client, turn, interrupts_after)
                            )
                        if self.habits.reads_at is not None:
                            await asyncio.sleep(event.samples / SAMPLE_RATE / self.habits.reads_at)
                    elif isinstance(event, Caption):
                        turn.caption(event.end)
                    elif isinstance(event, TurnDone):
                        turn.done = True
                    elif isinstance(event, TurnCancelled):
                        turn.cancelled(time.perf_counter())
                    elif isinstance(event, Error):
                        self.errors.append(event.code)
            if barging_in is not None and not turn.was_cancelled:
                # All of it has come and much is not heard yet: the server still takes it back.
                await barging_in
                if turn.interrupted:
                    while not isinstance(await client.receive(), TurnCancelled | Error):
                        pass
                    turn.cancelled(time.perf_counter())
        finally:
            if barging_in is not None:
                barging_in.cancel()

    async def _barge_in(self, client: VoiceClient, turn: Turn, after: float) -> None:
        """Cancel once `after` seconds were heard, unless the turn ends before that."""
        started = turn.player.started
        assert started is not None
        await asyncio.sleep(max(0.0, started + after - time.perf_counter()))
        now = time.perf_counter()
        if turn.done and now >= turn.player.runs_dry_at:
            return
        turn.interrupt(now)
        await client.cancel(played_ms=1000 * max(0.0, now - started))

    async def _write(self, turn: Turn) -> AsyncIterator[str]:
        text = next(self.texts)
        for _ in range(self.rng.randint(1, self.habits.turn_sentences) - 1):
            more = next(self.texts)
            text += (" " if text.isascii() or more.isascii() else "") + more
        rate = self.habits.tokens_per_second
        parts = [text] if rate is None else tokens(text)
        began = time.perf_counter()
        for part, at in zip(parts, token_times(parts, rate or 1.0, self.rng), strict=True):
            if (early := began + at - time.perf_counter()) > 0:
                await asyncio.sleep(early)
            turn.send(time.perf_counter(), part)
            yield part

    def close_window(self, now: float) -> bool:
        """The window ends; whether this user may be sent away, no answer being awaited."""
        if not self.turns:
            return True
        for turn in self.turns:
            turn.close(now)
        return self.turns[-1].heard or self.turns[-1].done

    @property
    def lead(self) -> float | None:
        """Seconds of audio in hand while a turn is being received; None otherwise."""
        if not self.turns or self.turns[-1].done or not self.turns[-1].answered:
            return None
        return self.turns[-1].player.lead(time.perf_counter())

    @property
    def playing(self) -> bool:
        """Whether this user hears something now, or would if the stream had not run dry."""
        if not self.turns or not self.turns[-1].answered:
            return False
        turn = self.turns[-1]
        return not turn.done or turn.player.runs_dry_at > time.perf_counter()

    @property
    def gapless(self) -> bool:
        """Whether every turn was answered, and none ran dry or lost anything."""
        return (
            bool(self.turns)
            and not self.errors
            and all(turn.answered and not turn.player.gaps for turn in self.turns)
        )
