"""Speakers on a sound card that plays when it is told to."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
from fake_engine import FakeSynthesizer, Script
from gateway_conftest import Run

from gateway.protocol import TurnDone
from gateway.speakers import Fill, Speakers, SpeakersMissingError, open_default


class SoundCard:
    """Takes 20 ms every 20 ms."""

    latency = 0.01

    def __init__(self, fill: Fill) -> None:
        self._fill = fill
        self.heard = bytearray()
        self.closed = False

    def start(self) -> None: ...

    def close(self) -> None:
        self.closed = True

    def pull(self, samples: int = 480) -> bytes:
        out = bytearray(2 * samples)
        self._fill(memoryview(out))
        self.heard += out
        return bytes(out)


@contextlib.asynccontextmanager
async def playing(card: SoundCard, seconds: float = 0.02) -> AsyncIterator[None]:
    async def pull() -> None:
        while True:
            card.pull()
            await asyncio.sleep(seconds)

    pulling = asyncio.create_task(pull())
    yield
    pulling.cancel()


def opened() -> tuple[Speakers, SoundCard]:
    cards: list[SoundCard] = []

    def open_card(fill: Fill) -> SoundCard:
        cards.append(SoundCard(fill))
        return cards[0]

    return Speakers(open_card), cards[0]


def test_samples_are_played_in_order_and_then_silence() -> None:
    speakers, card = opened()
    with speakers:
        speakers.write(b"\x01\x00" * 300)
        speakers.write(b"\x02\x00" * 300)
        assert card.pull(480) == b"\x01\x00" * 300 + b"\x02\x00" * 180
        assert card.pull(480) == b"\x02\x00" * 120 + bytes(720)
        assert speakers.idle
        # Ten milliseconds are still on their way to the ear.
        assert speakers.heard == 600 - 240
        assert speakers.clear() == 360
        assert speakers.heard == 0
    assert card.closed


async def test_a_turn_is_heard_to_its_end(run: Run) -> None:
    speakers, card = opened()
    async with run() as running, running.client(format="pcm_s16le") as client, playing(card, 0.001):
        done = await speakers.play(client, "Hello you.")
        assert isinstance(done, TurnDone)
        heard = np.frombuffer(card.heard, "<i2")
        assert 4_700 < np.count_nonzero(heard) <= done.samples
        with pytest.raises(ValueError, match="nothing to say"):
            await speakers.play(client, "")


async def test_an_interruption_tells_what_was_heard(run: Run) -> None:
    speakers, card = opened()
    told: list[dict[str, Any]] = []
    engine = FakeSynthesizer(lambda *_: Script(samples=36_000))
    async with run(engine) as running, running.client(format="pcm_s16le") as client:
        send = client.link.send

        async def listened(message: dict[str, Any]) -> None:
            told.append(message)
            await send(message)

        client.link.send = listened  # type: ignore[method-assign]
        speech = asyncio.create_task(speakers.play(client, "Hello you."))
        while np.count_nonzero(np.frombuffer(card.heard, "<i2")) < 12_000:
            card.pull()
            await asyncio.sleep(0.001)
        speech.cancel()
        await asyncio.gather(speech, return_exceptions=True)
        assert card.pull() == bytes(960)
    played = np.count_nonzero(np.frombuffer(card.heard, "<i2")) / 24
    [cancel] = [message for message in told if message["type"] == "turn.cancel"]
    assert cancel["played_ms"] == pytest.approx(played - 10, abs=25)


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "sounddevice":
            raise ImportError("No module named 'sounddevice'")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SpeakersMissingError, match=r"voxgate\[play\]"):
        open_default(lambda _: None)
