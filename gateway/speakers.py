"""Speech through the speakers of this machine: `pip install 'voxgate[play]'`.

async with VoiceClient(url, format="pcm_s16le") as client:
    with Speakers() as speakers:
        await speakers.play(client, "Hello, world.")
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from engine.api import SAMPLE_RATE
from gateway.client import Audio, Text, VoiceClient
from gateway.protocol import TurnCancelled, TurnDone

_SAMPLE_BYTES = 2
_LOOK_SECONDS = 0.02
_REPORT_SECONDS = 1.0
Fill = Callable[[memoryview], None]
"""Called by the sound card, in a thread of its own, for the next samples."""


class Stream(Protocol):
    """An output that plays 24 kHz mono 16-bit samples."""

    latency: float
    """Seconds from `Fill` to the ear."""

    def start(self) -> None: ...
    def close(self) -> None: ...


class SpeakersMissingError(RuntimeError):
    """This machine has no sound card, or not what is needed to play on it."""


def open_default(fill: Fill) -> Stream:
    """The default output. Raises `SpeakersMissingError` with what to install."""
    try:
        import sounddevice
    except (ImportError, OSError) as missing:
        raise SpeakersMissingError(
            "To play here: pip install 'voxgate[play]'   and on Debian: apt-get install "
            f"libportaudio2   ({missing})"
        ) from missing

    def callback(out: Any, frames: int, time: Any, status: Any) -> None:
        fill(memoryview(out).cast("B"))

    try:
        stream: Stream = sounddevice.RawOutputStream(
            samplerate=SAMPLE_RATE, channels=1, dtype="int16", latency="low", callback=callback
        )
    except sounddevice.PortAudioError as failure:
        raise SpeakersMissingError(f"The sound card does not play: {failure}") from failure
    return stream


class Speakers:
    """Plays one turn after the other and knows what was heard."""

    def __init__(self, open_stream: Callable[[Fill], Stream] = open_default) -> None:
        """Raises `SpeakersMissingError`."""
        self._lock = threading.Lock()
        self._queue: deque[memoryview] = deque()
        self._played = 0
        self._stream = open_stream(self._fill)

    def __enter__(self) -> Speakers:
        self._stream.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def write(self, pcm: bytes) -> None:
        """More 24 kHz mono 16-bit samples."""
        with self._lock:
            self._queue.append(memoryview(pcm))

    def clear(self) -> int:
        """Silence at once; returns the samples heard since the last call."""
        with self._lock:
            self._queue.clear()
            heard, self._played = self._heard(), 0
        return heard

    @property
    def heard(self) -> int:
        """Samples heard since the last `clear`."""
        with self._lock:
            return self._heard()

    @property
    def idle(self) -> bool:
        """Whether nothing waits to be played."""
        with self._lock:
            return not self._queue

    def _heard(self) -> int:
        return max(0, self._played - int(self._stream.latency * SAMPLE_RATE))

    def _fill(self, out: memoryview) -> None:
        at = 0
        with self._lock:
            while self._queue and at < len(out):
                head = self._queue.popleft()
                size = min(len(head), len(out) - at)
                out[at : at + size] = head[:size]
                at += size
                if size < len(head):
                    self._queue.appendleft(head[size:])
            self._played += at // _SAMPLE_BYTES
        out[at:] = bytes(len(out) - at)

    async def play(self, client: VoiceClient, text: Text) -> TurnDone | TurnCancelled:
        """Speak one turn and return when it was heard. `client` has the format `pcm_s16le`.

        Cancelling this silences the speakers and tells the server what was heard.
        """
        reporting: asyncio.Task[None] | None = None
        last: TurnDone | TurnCancelled | None = None
        try:
            async for event in client.speak(text):
                if isinstance(event, Audio):
                    self.write(event.payload)
                    if reporting is None:
                        reporting = asyncio.create_task(self._report(client, event.turn))
                elif isinstance(event, TurnDone | TurnCancelled):
                    last = event
            while isinstance(last, TurnDone) and not self.idle:  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_SECONDS)
            await asyncio.sleep(self._stream.latency)
        except asyncio.CancelledError:
            await client.cancel(played_ms=self.clear() * 1000 / SAMPLE_RATE)
            raise
        finally:
            if reporting is not None:
                reporting.cancel()
        self.clear()
        if last is None:
            raise ValueError("there is nothing to say in this text")
        return last

    async def _report(self, client: VoiceClient, turn: int) -> None:
        while True:
            await asyncio.sleep(_REPORT_SECONDS)
            await client.report(turn, self.heard * 1000 / SAMPLE_RATE)
