"""Where texts are read: what takes long keeps no listener waiting."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from engine.api import SpeechError, SpeechRequest
from engine.synthesizer import EngineSynthesizer

SHORT, LONG = SpeechRequest("Hello there."), SpeechRequest("1,234.56 and " * 12)


@pytest.fixture
def engine() -> EngineSynthesizer:
    """Without a model: only what reading needs."""
    engine = EngineSynthesizer.__new__(EngineSynthesizer)
    engine._reader, engine._reading = ThreadPoolExecutor(1, "text"), 0
    return engine


async def test_a_short_text_is_read_at_once(engine: EngineSynthesizer) -> None:
    assert await engine._read(SHORT, threading.get_ident) == threading.get_ident()


async def test_a_long_text_is_read_beside_the_loop(engine: EngineSynthesizer) -> None:
    entered, go_on = threading.Event(), threading.Event()
    order: list[str] = []

    def long() -> int:
        entered.set()
        assert go_on.wait(10)
        order.append("long")
        return threading.get_ident()

    def short() -> int:
        order.append("short")
        return threading.get_ident()

    reading = asyncio.create_task(engine._read(LONG, long))
    while not entered.is_set():
        await asyncio.sleep(0.001)
    # The loop is free; what comes meanwhile waits its turn, in the same thread.
    after = asyncio.create_task(engine._read(SHORT, short))
    await asyncio.sleep(0)
    go_on.set()
    assert await reading == await after != threading.get_ident()
    assert order == ["long", "short"]
    assert await engine._read(SHORT, threading.get_ident) == threading.get_ident()


async def test_what_cannot_be_read_is_told_as_ever(engine: EngineSynthesizer) -> None:
    def fail() -> None:
        raise SpeechError("unpronounceable", "Nothing to say.")

    with pytest.raises(SpeechError, match="Nothing to say"):
        await engine._read(LONG, fail)
    assert engine._reading == 0
