"""One WebSocket: what comes in goes to a session, what the session has goes out.

One task reads, one sends, one watches for a peer that takes nothing. The session usually ends with
its connection; one that may be resumed can be handed from a lost connection to the next.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine

from starlette.websockets import WebSocket, WebSocketDisconnect

from gateway.actions import Close, Resume
from gateway.errors import ERRORS
from gateway.metrics import Metrics
from gateway.protocol import ProtocolError
from gateway.rates import Bucket
from gateway.runner import Runner
from gateway.sessions import Sessions
from gateway.transport import EXTENSION, LOST

_BURST = 8
"""Messages sent, and taken, before other tasks get their turn: below a millisecond. As many of
each, so that answers do not pile up."""
_LOOK_SECONDS = 0.5
_SECONDS_AT_ONCE = 2
"""Messages of so many seconds may come at any speed."""


class Connection:
    """Serves one WebSocket; `run` returns when it is closed."""

    def __init__(
        self,
        socket: WebSocket,
        runner: Runner,
        sessions: Sessions,
        metrics: Metrics,
        *,
        stall_limit: float,
        messages_per_second: float,
        read: Callable[[str | bytes], str | bytes] = lambda raw: raw,
    ) -> None:
        """`read`: what every message goes through before the session gets it."""
        self.runner: Runner | None = runner
        """The session served; None once it went on over another connection."""
        self._socket = socket
        self._sessions = sessions
        self._metrics = metrics
        self._stall_limit = stall_limit
        self._clock = runner.clock
        self._read = read
        self._messages = Bucket(messages_per_second)
        self._messages_at_once = _SECONDS_AT_ONCE * messages_per_second
        self._may_send = asyncio.Event()
        self._sending_since: float | None = None
        self._stalled = False
        self._replaced: asyncio.Task[None] | None = None
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the connection is."""

    async def run(self) -> None:
        """Serve until either side ends it."""
        assert self.runner is not None
        self.runner.connection = self
        tasks = [self._guard(self._send()), self._guard(self._watch())]
        self.runner.settle()
        lost = False
        try:
            lost = await self._receive()
        except Exception as fault:
            self._crash(fault)
        finally:
            runner, self.runner = self.runner, None
            for task in tasks:
                task.cancel()
            if runner is not None:
                runner.connection = None
                why = "slow_reader" if self._stalled else "disconnected"
                await self._sessions.left(runner, why, lost=lost or self._stalled)
            await asyncio.gather(*tasks, return_exceptions=True)
            self.over.set_result(None)

    # -- what the session wants ------------------------------------------------------------------

    def wake(self) -> None:
        """There may be something to send."""
        self._may_send.set()

    def resume(self, request: Resume) -> None:
        """Serve the session asked for instead of the one that waits for its start."""
        assert self.runner is not None
        waiting = self.runner
        try:
            runner = self._sessions.find(request.token)
            runner.session.resume(request.received, self._clock())
        except ProtocolError as refusal:
            waiting.session.refuse(refusal, "session.resume")
            return
        before, waiting.connection = runner.connection, None
        if before is not None:
            before.fail("taken_over")
        self.runner, runner.connection = runner, self
        self._sessions.resumed(runner)
        self._replaced = asyncio.create_task(self._sessions.close(waiting, "resumed"))
        runner.settle()

    def fail(self, code: str) -> None:
        """End the connection for certain, with an error code."""
        if code == "taken_over":
            self.runner = None
        self._socket.scope["extensions"][EXTENSION](ERRORS[code].close or 1011, code)

    # -- the socket ------------------------------------------------------------------------------

    async def _receive(self) -> bool:
        """Returns whether the connection was lost, rather than closed."""
        for count in itertools.count(1):
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                return bool(message["code"] == LOST)
            if self.runner is None:
                continue
            raw = message.get("text")
            if raw is None:
                raw = message["bytes"]
            runner = self.runner
            runner.session.receive(self._read(raw), self._clock())
            runner.settle()
            await runner.read()
            self._messages.add(1, self._clock())
            # Nothing is lost: who sends too fast fills the sockets between.
            wait = self._messages.until(self._messages_at_once, self._clock())
            if wait or count % _BURST == 0:
                await asyncio.sleep(wait)
        raise AssertionError

    async def _send(self) -> None:
        burst = 0
        while self.runner is not None:
            runner = self.runner
            await runner.turn()
            if self.runner is not runner:
                # It goes on over another connection; what it has to send is for that.
                continue
            item = runner.take()
            if item is None:
                runner.settle()
                self._may_send.clear()
                await self._may_send.wait()
                burst = 0
                continue
            self._sending_since = self._clock()
            try:
                if isinstance(item, Close):
                    runner.ended = runner.ended or item.reason
                    await self._socket.close(item.code, item.reason)
                    return
                if isinstance(item, str):
                    await self._socket.send_text(item)
                else:
                    await self._socket.send_bytes(item)
            except (WebSocketDisconnect, RuntimeError):
                # The connection is closed; the reader sees it too and ends everything.
                return
            self._sending_since = None
            burst += 1
            if burst % _BURST == 0:
                runner.settle()
                await asyncio.sleep(0)

    async def _watch(self) -> None:
        """End the connection of a reader that takes nothing."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            since = self._sending_since
            if since is not None and self._clock() - since > self._stall_limit:
                self._stalled = True
                self._metrics.error("slow_reader")
                self.fail("slow_reader")
                return

    def _guard(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run `work`; a fault in it ends the connection instead of leaving it half alive."""
        task = asyncio.create_task(work)
        task.add_done_callback(self._check)
        return task

    def _check(self, task: asyncio.Task[None]) -> None:
        fault = None if task.cancelled() else task.exception()
        if fault is not None:
            self._crash(fault)

    def _crash(self, fault: BaseException) -> None:
        if self.runner is not None:
            self.runner.crash(fault)
        else:
            self.fail("internal")
