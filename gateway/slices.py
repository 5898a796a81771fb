"""Time of the event loop, shared out: what encodes for one session must not keep others waiting.

One step of one session is a millisecond; a step of each in one turn of the loop would be a pause
that every timer and every socket feels.
"""

from __future__ import annotations

import asyncio
from collections import deque

BUDGET_SECONDS = 0.004
_LATELY = 0.1
"""How much the latest piece of work counts in what one takes on average."""


class Slices:
    """So much work in each turn of the event loop, over all that ask, in the order in which they
    ask; one for a server.
    """

    def __init__(self, budget: float = BUDGET_SECONDS) -> None:
        self._budget = self._left = budget
        self._usual = budget
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._armed = False

    async def turn(self) -> None:
        """Wait until there is time for a piece of work."""
        if self._left > 0.0 and not self._waiting:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._arm()
        await future

    def spent(self, seconds: float) -> None:
        """So long a piece of work took."""
        self._usual += _LATELY * (seconds - self._usual)
        self._left -= seconds
        self._arm()

    def _arm(self) -> None:
        if not self._armed:
            self._armed = True
            asyncio.get_running_loop().call_soon(self._renew)

    def _renew(self) -> None:
        """The next turn of the loop: let as many work as there is time for."""
        self._armed = False
        self._left = self._budget
        free = max(1, int(self._budget / max(self._usual, 1e-6)))
        while self._waiting and free:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                free -= 1
        if self._waiting:
            self._arm()
