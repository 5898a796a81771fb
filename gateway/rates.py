"""How fast something may come: a bucket that leaks."""

from __future__ import annotations


class Bucket:
    """Holds what came lately: `add` fills it, time empties it at `rate` a second."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._level = 0.0
        self._at = 0.0

    def level(self, now: float) -> float:
        """What has come and not yet leaked."""
        self._level = max(0.0, self._level - (now - self._at) * self._rate)
        self._at = now
        return self._level

    def add(self, amount: float, now: float) -> None:
        self._level = self.level(now) + amount

    def until(self, level: float, now: float) -> float:
        """Seconds until no more than `level` is left."""
        return max(0.0, self.level(now) - level) / self._rate
