"""`VoiceClient` for programs without asyncio.

with SyncVoiceClient("http://127.0.0.1:8080", voice="default") as client:
    for event in client.speak("Hello, world."):  # or an iterator of text
        if isinstance(event, Audio):
            play(event.payload)
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

from gateway.client import FLUSH, Audio, Event, Flush, GatewayError, VoiceClient
from gateway.protocol import SessionStarted

__all__ = ["FLUSH", "Audio", "Event", "GatewayError", "SyncVoiceClient"]

_END = object()
Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")


def _taking(
    init: Callable[Concatenate[Any, Parameters], None],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, Parameters], None]]:
    """Gives a function the parameters of another, for editors and type checkers."""
    return lambda function: function


class SyncVoiceClient:
    """One session, kept alive by a thread of its own. Takes what `VoiceClient` takes.

    Turns are spoken one at a time with `speak`; `cancel` may come from any thread.
    """

    @_taking(VoiceClient.__init__)
    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._make: Callable[[], VoiceClient] = partial(VoiceClient, *arguments, **options)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._client: VoiceClient

    def __enter__(self) -> SyncVoiceClient:
        """Raises `GatewayError`: `unreachable`, or the code with which the server refused."""
        self._thread.start()
        try:
            self._do(self._open())
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._do(self._client.__aexit__(None, None, None))
        finally:
            self._stop()

    @property
    def started(self) -> SessionStarted:
        """The server's answer to `session.start`."""
        return self._client.started

    def speak(self, text: str | Iterable[str | Flush]) -> Iterator[Event]:
        """Speak one turn; see `VoiceClient.speak`. An iterator of text is read in a thread, as its
        text is wanted. Leaving the loop early cancels the turn.
        """
        events = self._client.speak(text if isinstance(text, str) else _in_thread(text))
        try:
            while True:
                event = self._do(_next(events))
                if event is None:
                    return
                yield event
        finally:
            self._do(events.aclose())

    def cancel(self, played_ms: float | None = None) -> None:
        """Stop speaking; `played_ms` is how much of the turn was heard."""
        self._do(self._client.cancel(played_ms))

    def report(self, turn: int, played_ms: float, *, paused: bool = False) -> None:
        """Tell the server what is heard now."""
        self._do(self._client.report(turn, played_ms, paused=paused))

    async def _open(self) -> None:
        self._client = await self._make().__aenter__()

    def _do(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _next(events: AsyncGenerator[Event, None]) -> Event | None:
    return await anext(events, None)


async def _in_thread(text: Iterable[str | Flush]) -> AsyncGenerator[str | Flush, None]:
    """A thread that nobody waits for reads it: an iterator that blocks cannot be cancelled."""
    loop = asyncio.get_running_loop()
    parts: asyncio.Queue[Any] = asyncio.Queue()
    wanted = threading.Semaphore(1)

    def read() -> None:
        end: Any = _END
        try:
            for part in text:
                loop.call_soon_threadsafe(parts.put_nowait, part)
                wanted.acquire()
        except RuntimeError as over:
            if loop.is_closed():
                return
            end = over
        except Exception as failure:
            end = failure
        if not loop.is_closed():
            loop.call_soon_threadsafe(parts.put_nowait, end)

    wanted.acquire()
    threading.Thread(target=read, daemon=True).start()
    while (part := await parts.get()) is not _END:
        if isinstance(part, Exception):
            raise part
        yield part
        wanted.release()
