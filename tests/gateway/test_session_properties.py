"""Whatever happens in whatever order: nothing twice, lost or late, and every turn ends."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from session_harness import Harness, Packet

from gateway.actions import Close
from gateway.settings import Settings

TEXTS = st.sampled_from(
    [
        "Hello there, my friend. ",
        "你好，世界。",
        "No full stop",
        " and then",
        "One. Two. Three. ",
        "...",
        " ",
        "It costs 3.14 dollars, or so; ",
        "A long sentence that goes on and on, without much of a reason, until it ends at last. ",
    ]
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("text"), TEXTS),
        st.tuples(st.just("text"), TEXTS),
        st.tuples(st.just("end"), st.none()),
        st.tuples(st.just("flush"), st.none()),
        st.tuples(st.just("cancel"), st.none() | st.integers(0, 40_000)),
        st.tuples(st.just("start"), st.booleans()),
        st.tuples(st.just("cancel one"), st.integers(1, 5)),
        st.tuples(st.just("playback"), st.integers(0, 40_000)),
        st.tuples(st.just("update"), st.none()),
        st.tuples(st.just("audio"), st.tuples(st.integers(0, 3), st.integers(0, 9000))),
        st.tuples(st.just("speak"), st.tuples(st.integers(0, 3), st.integers(480, 9000))),
        st.tuples(st.just("final"), st.tuples(st.integers(0, 3), st.integers(0, 9000))),
        st.tuples(st.just("fail"), st.tuples(st.integers(0, 3), st.booleans())),
        st.tuples(st.just("take"), st.integers(1, 30)),
        st.tuples(st.just("wait"), st.floats(0, 3)),
    ),
    min_size=12,
    max_size=60,
)


def level(key: int) -> float:
    """The constant that the audio of a piece consists of."""
    return round(0.1 + 0.01 * (key % 80), 2)


class Run:
    """Carries out steps on a session and remembers what was put in."""

    def __init__(self, live: bool) -> None:
        self.h = Harness(
            Settings(pieces_ahead=3, piece_retry_seconds=1.0), {"live": live}, levelled=False
        )
        self.written: dict[int, str] = defaultdict(str)
        self.made: dict[int, int] = defaultdict(int)
        self.flushes = 0

    def step(self, what: str, value: Any) -> None:
        h = self.h
        if what == "text":
            h.send("text.append", text=value)
            if h.observer.errors["too_many_turns"] == 0:
                self.written[h.observer.turns["started"]] += value
        elif what == "end":
            h.send("turn.end")
        elif what == "flush":
            self.flushes += 1
            h.send("text.flush", id=str(self.flushes))
        elif what == "start":
            h.send("turn.start", interrupt=value)
        elif what == "cancel":
            h.send("turn.cancel", **({} if value is None else {"played_samples": value}))
        elif what == "cancel one":
            h.send("turn.cancel", turn=value)
        elif what == "playback":
            h.send("playback", turn=1, played_samples=value)
        elif what == "update":
            h.send("session.update", voice="bao", scope="piece")
        elif what == "take":
            h.take(value)
        elif what == "wait":
            h.wait(value)
        elif h.engine:
            key = sorted(h.engine)[value[0] % len(h.engine)]
            if what == "fail":
                self.made[key] = 0
                h.fail(key, retryable=value[1])
            else:
                self.made[key] += value[1]
                if what == "speak":
                    h.audio(key, value[1], level(key))
                    h.take(3)
                    return
                h.audio(key, value[1], level(key), final=what == "final")

    def finish(self) -> None:
        """The writer ends, the engine makes all, the reader reads all."""
        self.h.send("session.end")
        for _ in range(10_000):
            for key in sorted(self.h.engine):
                self.made[key] += 480
                self.h.audio(key, 480, level(key), final=True)
            self.h.take()
            if isinstance(self.h.out[-1], Close):
                return
            if self.h.session.deadline is not None:
                self.h.wait(max(0.0, self.h.session.deadline - self.h.now) + 1e-6)
        raise AssertionError("the session does not end")


@settings(deadline=None, max_examples=250)
@given(STEPS, st.booleans())
def test_any_order_of_events_keeps_the_promises(steps: list[tuple[str, Any]], live: bool) -> None:
    run = Run(live)
    for what, value in steps:
        run.step(what, value)
        assert len(run.h.engine) <= 3
    run.finish()
    h = run.h
    check_ends(h)
    check_order(h)
    check_captions(h, run.written)
    check_audio(h, run.made)
    answered = sorted(int(m["id"]) for m in h.messages("flush.done"))
    assert answered == list(range(1, run.flushes + 1))
    assert h.observer.turns["started"] == h.observer.turns["done"] + h.observer.turns["cancelled"]


def check_ends(h: Harness) -> None:
    """Every turn starts once and ends once; after that comes nothing but a cancel asked for."""
    over: dict[int, str] = {}
    started: list[int] = []
    for item in h.out:
        if isinstance(item, Close):
            continue
        turn = item.header.turn if isinstance(item, Packet) else item.get("turn")
        if turn is None:
            continue
        kind = "audio" if isinstance(item, Packet) else item["type"]
        if kind == "turn.started":
            started.append(turn)
        elif kind == "turn.cancelled":
            assert over.get(turn) == ("done" if item["completed"] else None)  # type: ignore[index]
            over[turn] = "cancelled"
        else:
            assert turn in started
            assert turn not in over, f"{kind} after turn {turn} was {over[turn]}"
            if kind == "turn.done":
                over[turn] = "done"
    assert started == list(range(1, len(started) + 1))
    assert sorted(over) == started
    assert h.types()[-2:] == ["session.ended", "Close"]


def check_order(h: Harness) -> None:
    """Turns in order, positions contiguous within a turn, one sequence for the session."""
    position: dict[int, int] = {}
    for packet in h.packets():
        header = packet.header
        assert header.position == position.get(header.turn, 0)
        assert packet.pcm.size == header.samples
        position[header.turn] = header.position + header.samples
    turns = [packet.header.turn for packet in h.packets()]
    assert turns == sorted(turns)
    assert [p.header.sequence for p in h.packets()] == list(range(len(turns)))
    for done in h.messages("turn.done"):
        assert done["samples"] == position.get(done["turn"], 0)


def check_captions(h: Harness, written: dict[int, str]) -> None:
    """Captions tile the text in order; a cancelled turn gives back its whole text."""
    for turn, text in written.items():
        finals = [m for m in h.messages("caption") if m["turn"] == turn and m["final"]]
        assert [m["piece"] for m in finals] == list(range(len(finals)))
        assert text.startswith("".join(m["text"] for m in finals))
        for before, after in pairwise(finals):
            assert before["end"] == after["start"]
            assert before["start_sample"] <= before["end_sample"] <= after["start_sample"]
        for message in h.messages("turn.cancelled"):
            if message["turn"] == turn:
                assert message["spoken"] + message["unspoken"] == text
                assert 0 <= message["heard_samples"] <= message["sent_samples"]


def check_audio(h: Harness, made: dict[int, int]) -> None:
    """Under each caption lies the audio of its piece, all of it, and no other's."""
    failed = {(m["turn"], m["piece"]) for m in h.messages("error") if "piece" in m}
    complete = {m["turn"] for m in h.messages("turn.done")}
    keys = {level(key): key for key in made}
    spoken: list[int] = []
    for message in h.messages("caption"):
        turn, start = message["turn"], message["start_sample"]
        packets = h.packets(turn)
        if not message["final"] or start == message["end_sample"] or not packets:
            continue
        part = np.concatenate([p.pcm for p in packets])[start : message["end_sample"]]
        levels = {round(float(value), 2) for value in part}
        assert len(levels) <= 1
        for found in levels:
            key = keys[found]
            spoken.append(key)
            if turn in complete and (turn, message["piece"]) not in failed:
                assert part.size == message["end_sample"] - start == made[key]
    assert spoken == sorted(set(spoken)), "a piece was spoken twice or out of order"
