"""Cut the wire anywhere, any number of times: no message is lost, doubled or changed either way."""

from __future__ import annotations

import json
from collections import deque
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from session_harness import Harness, read

from gateway.actions import Close
from gateway.settings import Settings

MESSAGES = st.sampled_from(
    [
        {"type": "text.append", "text": "Hello there, my friend. "},
        {"type": "text.append", "text": "你好，世界。"},
        {"type": "text.append", "text": " and then"},
        {"type": "text.append", "text": "One. Two. Three. "},
        {"type": "turn.end"},
        {"type": "text.flush", "id": "f"},
        {"type": "turn.cancel"},
        {"type": "ping", "id": "p"},
        {"type": "session.update", "voice": "bao"},
        {"type": "weather"},
    ]
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), MESSAGES),
        st.tuples(st.just("write"), MESSAGES),
        st.tuples(st.just("up"), st.integers(1, 5)),
        st.tuples(st.just("take"), st.integers(1, 20)),
        st.tuples(st.just("down"), st.integers(1, 20)),
        st.tuples(st.just("speak"), st.integers(1, 5000)),
        st.tuples(st.just("cut"), st.none()),
        st.tuples(st.just("wait"), st.floats(0, 2)),
    ),
    min_size=12,
    max_size=60,
)


class Wire:
    """A client, a session, and between them two queues that a cut empties."""

    def __init__(self) -> None:
        self.h = Harness(Settings(), {"resume": True})
        self.sent_first = list(self.h.wire)
        """What the session sent, each message once."""
        self.has = list(self.h.wire)
        """What the client has."""
        self.written: list[str] = [""]
        """What the client wrote, its `session.start` included."""
        self.taken: list[str] = [""]
        """What the session took."""
        self.up: deque[str] = deque()
        self.down: deque[str | bytes] = deque()
        self.replayed = 0
        """Messages on their way that were sent before."""

    def step(self, what: str, value: Any) -> None:
        h = self.h
        if what == "write":
            self.written.append(json.dumps(value))
            self.up.append(self.written[-1])
        elif what == "up":
            for _ in range(min(value, len(self.up))):
                self.taken.append(self.up.popleft())
                h.raw(self.taken[-1])
        elif what == "take":
            self.take(value)
        elif what == "down":
            for _ in range(min(value, len(self.down))):
                self.has.append(self.down.popleft())
        elif what == "speak" and h.engine:
            h.audio(min(h.engine), value, final=value % 2 == 0)
        elif what == "wait":
            h.wait(value)
        elif what == "cut":
            self.cut()

    def take(self, most: int) -> bool:
        """The session sends; False when it has closed."""
        for _ in range(most):
            item = self.h.session.take(self.h.now)
            self.h.settle()
            if item is None:
                break
            if isinstance(item, Close):
                return False
            if self.replayed:
                self.replayed -= 1
            else:
                self.sent_first.append(item)
            self.down.append(item)
        return True

    def cut(self) -> None:
        """All that is on its way is lost; the client connects again."""
        self.up.clear()
        self.down.clear()
        self.h.session.resume(len(self.has), self.h.now)
        answer = read(self.h.session.take(self.h.now) or "")
        assert isinstance(answer, dict)
        assert answer["type"] == "session.resumed"
        assert answer["received"] == len(self.taken)
        self.replayed = answer["replayed"]
        assert self.replayed == len(self.sent_first) - len(self.has)
        self.up.extend(self.written[answer["received"] :])

    def finish(self) -> None:
        """Everything arrives; the last cut comes when the session has closed."""
        self.step("write", {"type": "session.end"})
        for _ in range(10_000):
            self.step("up", 1000)
            self.step("speak", 480)
            if not self.take(1000):
                break
            if self.h.session.deadline is not None:
                self.h.wait(max(0.0, self.h.session.deadline - self.h.now) + 1e-6)
        self.step("down", len(self.down) // 2)
        self.cut()
        assert not self.take(100_000)
        self.step("down", 100_000)


@settings(deadline=None, max_examples=200)
@given(STEPS)
def test_any_cuts_lose_and_double_nothing(steps: list[tuple[str, Any]]) -> None:
    wire = Wire()
    for what, value in steps:
        wire.step(what, value)
    wire.finish()
    assert wire.has == wire.sent_first
    assert wire.taken == wire.written
    assert json.loads(str(wire.has[-1]))["type"] == "session.ended"
