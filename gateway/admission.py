"""Who is let in: as many sessions as the engine can speak for without anybody running dry.

Supply is measured (`gateway.supply`), and so is demand: a session that is spoken for is one stream,
one that is silent counts by how much of its time it is not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol
from weakref import WeakKeyDictionary

from engine.api import EngineStats
from gateway.pacing import Refusal, admit
from gateway.rates import Bucket
from gateway.settings import Settings
from gateway.supply import Supply

LOOK_SECONDS = 0.5
_DUTY_SECONDS = 15.0
"""Of a session's past, what counts towards how likely it is to be spoken for next."""
_DEVIATIONS = 2.0
"""As many more of the silent sessions may speak at once than on average."""
_TROUBLE_SECONDS = 3.0
_TROUBLE_SHARE = 0.05
"""Live listeners who ran dry within so many seconds, beyond which nobody else is let in."""
_TOO_MANY = 0.9
_FORGETTING_SECONDS = 120.0
_BUSY = 0.6
"""Where listeners ran dry, so much of what was asked for then is believed in, and more again with
time: throughput that was measured says nothing of what comes in bursts. Not where less than this
share of the capacity is used: then something else was the cause."""
_NOBODY = 0.5
"""Demand below which there is nobody to disturb."""
_SURE_SECONDS = 3.0
"""Of work that was watched."""
_MOST_ROUNDS = 14.0
"""Nobody is told to wait longer than so many times `retry_after_ms`, and once."""


class Consumer(Protocol):
    """What counts as demand: a session."""

    def speaking(self, now: float) -> bool | None:
        """Whether somebody listens live to what is or will be made of its text; None: never."""
        ...


class Admission:
    """`look` at all sessions every `LOOK_SECONDS`; `refusal` says whether one more may open."""

    def __init__(self, settings: Settings, supply: Supply, now: float) -> None:
        self._settings = settings
        self._supply = supply
        self._duty: WeakKeyDictionary[Consumer, float] = WeakKeyDictionary()
        self._looked_at = now
        self._demand = 0.0
        self._speaking = 0
        self._sessions = 0
        self._dry = Bucket(1.0 / _TROUBLE_SECONDS)
        self._ceiling, self._ceiling_at = math.inf, now
        self._refused = Bucket(1000.0 / max(1, settings.retry_after_ms))
        """In rounds of as many sessions as there is room for."""

    def look(self, sessions: Iterable[Consumer], stats: EngineStats, now: float) -> None:
        """Take in how the engine and all sessions do."""
        self._supply.look(stats, now)
        fading = math.exp(-(now - self._looked_at) / _DUTY_SECONDS)
        self._looked_at = now
        before, self._duty = self._duty, WeakKeyDictionary()
        expected = variance = 0.0
        self._speaking = self._sessions = 0
        for session in sessions:
            self._sessions += 1
            speaking = session.speaking(now)
            if speaking is None:
                continue
            duty = before.get(session, 1.0) * fading + (1.0 - fading) * speaking
            self._duty[session] = duty
            if speaking:
                self._speaking += 1
            else:
                expected += duty
                variance += duty * (1.0 - duty)
        self._demand = self._speaking + expected + _DEVIATIONS * math.sqrt(variance)

    def ran_dry(self, now: float) -> None:
        """A live listener had nothing to hear."""
        self._dry.add(1, now)
        if self._trouble(now) and self._demand > _BUSY * self._measured:
            self._ceiling = min(self._below(now), _TOO_MANY * self._demand)
            self._ceiling_at = now

    def _below(self, now: float) -> float:
        """Streams at which listeners have run dry lately."""
        return self._ceiling * math.exp((now - self._ceiling_at) / _FORGETTING_SECONDS)

    def demand(self, sessions: int) -> float:
        """Streams at once that so many sessions are expected to need. Who came since the last look
        counts as speaking until they show otherwise."""
        if sessions < self._sessions:
            return self._demand * sessions / self._sessions
        return self._demand + sessions - self._sessions

    @property
    def capacity(self) -> float:
        """Streams at once that nobody runs dry of; one is always served as well as it can be, and
        two before it is sure that they cannot."""
        least = 1.0 if self._supply.seconds > _SURE_SECONDS else 2.0
        return max(least, min(self._measured, self._below(self._looked_at)))

    @property
    def _measured(self) -> float:
        return self._supply.capacity * (self._settings.capacity_share or 1.0)

    def pressure(self, sessions: int, now: float) -> float:
        """Demand over capacity: 1 is full, 0 idle; at least 1 while listeners run dry."""
        pressure = self.demand(sessions) / self.capacity
        return max(1.0, pressure) if self._trouble(now) else pressure

    def refusal(self, sessions: int, stats: EngineStats, now: float) -> Refusal | None:
        """Why no session may open beside `sessions`, if so."""
        refusal = admit(sessions, self._settings, stats)
        if refusal is None:
            message = self._risk(sessions, now)
            if message is not None:
                refusal = Refusal("capacity", message, self._settings.retry_after_ms)
        if refusal is None or refusal.code != "capacity":
            return refusal
        return replace(refusal, retry_after_ms=self._later(now))

    def _risk(self, sessions: int, now: float) -> str | None:
        """What would become of those who listen already."""
        demand = self.demand(sessions)
        if not self._settings.capacity_share or demand < _NOBODY:
            return None
        if demand + 1.0 > self.capacity:
            return (
                f"The engine speaks for {demand:.1f} streams; "
                f"it can for {self.capacity:.1f} without a gap."
            )
        return "Listeners run dry." if self._trouble(now) else None

    def _trouble(self, now: float) -> bool:
        return self._dry.level(now) > max(0.5, _TROUBLE_SHARE * self._speaking)

    def _later(self, now: float) -> int:
        """Milliseconds, more for everyone refused meanwhile: not all should come back at once."""
        self._refused.add(1.0 / self.capacity, now)
        rounds = min(_MOST_ROUNDS, self._refused.level(now))
        return int(self._settings.retry_after_ms * (1.0 + rounds))
