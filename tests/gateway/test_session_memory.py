"""What a session keeps while it speaks, and that nothing of it stays once it is over."""

from __future__ import annotations

import gc
import tracemalloc
import weakref

import numpy as np
from session_harness import Harness

from engine.api import AudioChunk
from gateway.runaway import RunawayGuard

SENTENCE = "A sentence of some eighty characters, which takes about five seconds to say it. "
SECONDS = 5


def speak(h: Harness, pieces: int) -> None:
    """One turn that stays open; the listener hears it as it is made."""
    noise = np.random.default_rng(1)
    for _ in range(pieces):
        h.send("text.append", text=SENTENCE)
        h.settle()
        h.now += SECONDS
        h.session.tick(h.now)
        h.settle()
        for key in list(h.engine):
            for _ in range(SECONDS):
                pcm = noise.normal(0.0, 0.1, 24_000).astype(np.float32)
                h.session.audio(key, AudioChunk(pcm), h.now)
                h.take()
            final = AudioChunk(np.zeros(0, np.float32), final=True, context=tuple(range(500)))
            h.session.audio(key, final, h.now)
            del h.engine[key]
        h.take()
        for kept in (h.out, h.wire, h.requests, h.keys, h.observer.leads):
            kept.clear()


def test_a_long_turn_keeps_its_text_and_not_its_audio() -> None:
    h = Harness(make_guard=RunawayGuard)
    speak(h, 4)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        speak(h, 40)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(h.session._turns.queue[0].pieces) > 40
    # The last four seconds of one piece alone are 400 KiB.
    assert grown / 40 < 40 * 1024


def test_a_session_that_is_over_is_gone_without_a_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        h = Harness(make_guard=RunawayGuard)
        speak(h, 3)
        session, turn = weakref.ref(h.session), weakref.ref(h.session._turns.queue[0])
        h.send("turn.cancel")
        h.take()
        assert turn() is None
        h.session.abandon()
        del h
        assert session() is None
    finally:
        gc.enable()
