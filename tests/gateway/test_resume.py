"""A session goes on over another connection: what the state machine says and sends again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from session_harness import Harness, Packet

from gateway.actions import Close, Resume
from gateway.protocol import Error, ProtocolError
from gateway.resend import Resend
from gateway.settings import Settings

TEXT = "This is the first sentence. And here comes the second one."


def resumable(**settings: Any) -> Harness:
    return Harness(Settings(**settings), {"resume": True})


def resumed(h: Harness, received: int) -> dict[str, Any]:
    """Resume and read the answer."""
    h.session.resume(received, h.now)
    (answer,) = h.take(1)
    assert isinstance(answer, dict)
    assert answer["type"] == "session.resumed"
    return answer


class TestResend:
    def test_what_is_missing_comes_again_once(self) -> None:
        kept = Resend(100)
        for message in ("a", b"b", "c"):
            kept.record(message)
        assert kept.rewind(1) == 2
        assert [kept.next() for _ in range(3)] == [b"b", "c", None]
        assert kept.sent == 3

    def test_a_second_loss_in_the_middle_begins_again(self) -> None:
        kept = Resend(100)
        for message in "abcd":
            kept.record(message)
        kept.rewind(0)
        assert kept.next() == "a"
        kept.rewind(1)
        assert [kept.next() for _ in range(4)] == ["b", "c", "d", None]

    def test_it_is_bounded_in_bytes(self) -> None:
        kept = Resend(10)
        for _ in range(100):
            kept.record(b"1234")
        assert kept.rewind(98) == 2
        with pytest.raises(ProtocolError) as gap:
            kept.rewind(97)
        assert gap.value.code == "replay_gap"
        assert [kept.next() for _ in range(3)] == [b"1234", b"1234", None]

    def test_a_client_cannot_have_more_than_was_sent(self) -> None:
        with pytest.raises(ProtocolError) as wrong:
            Resend(10).rewind(1)
        assert wrong.value.error.field == "received"


class TestStart:
    def test_a_token_comes_only_when_asked_for(self) -> None:
        for start, token in ({"resume": True}, "token"), ({}, None):
            h = Harness(start=None)
            h.send("session.start", **start)
            h.take()
            assert h.messages("session.started")[0].get("token") == token
            assert h.session.resumable is (token is not None)

    def test_an_operator_may_turn_it_off(self) -> None:
        h = Harness(Settings(resume_seconds=0.0), None)
        h.send("session.start", resume=True)
        h.take()
        assert "token" not in h.messages("session.started")[0]
        assert not h.session.resumable

    def test_resume_is_handed_to_the_shell(self) -> None:
        h = Harness(start=None)
        h.send("session.resume", token="other", received=7)
        assert h.resumes == [Resume("other", 7)]
        h.session.refuse(ProtocolError("unknown_session"), "session.resume")
        h.take()
        (error,) = h.messages("error")
        assert (error["code"], error["request"]) == ("unknown_session", "session.resume")
        assert not error["fatal"]
        h.send("session.start")
        h.take()
        assert h.messages("session.started")

    def test_it_is_too_late_after_the_start(self) -> None:
        h = resumable()
        h.send("session.resume", token="other", received=7)
        h.take()
        assert h.messages("error")[0]["code"] == "already_started"
        assert not h.resumes

    def test_a_full_server_refuses_a_start_but_not_a_resume(self) -> None:
        h = Harness(start=None)
        h.session._refusal = Error(code="capacity", message="Full.", hint="Later.", fatal=True)
        h.send("session.resume", token="other", received=7)
        assert h.resumes
        h.send("session.start")
        h.take()
        assert h.types() == ["error", "Close"]
        assert h.out[-1] == Close(1013, "capacity")


class TestResume:
    def test_what_the_client_lacks_comes_byte_for_byte(self) -> None:
        h = resumable()
        h.send("text.append", text=TEXT)
        h.send("turn.end")
        h.speak_all()
        first = list(h.wire)
        for received in (len(first), len(first) - 1, 5, 1):
            h.wire.clear()
            assert resumed(h, received)["replayed"] == len(first) - received
            h.take()
            assert h.wire[1:] == first[received:]

    def test_it_tells_what_the_server_has(self) -> None:
        h = resumable()
        h.send("text.append", text="Hello ")
        h.send("text.append", text="there")
        h.raw("not json")
        h.take()
        answer = resumed(h, len(h.wire))
        assert answer == {
            "type": "session.resumed",
            "session": "test",
            "received": 4,
            "characters": 11,
            "turn": 1,
            "turn_characters": 11,
            "replayed": 0,
        }
        h.send("turn.end")
        assert "turn" not in resumed(h, len(h.wire) - 1)

    def test_answers_given_meanwhile_come_after_what_comes_again(self) -> None:
        h = resumable()
        h.send("ping", id="1")
        h.take()
        resumed(h, 1)
        h.send("ping", id="2")
        h.take()
        assert [m["id"] for m in h.messages("pong")] == ["1", "1", "2"]

    def test_speech_goes_on_within_its_buffers_while_nobody_takes_it(self) -> None:
        h = resumable(audio_buffer_seconds=2.0)
        h.send("text.append", text="One sentence here. " * 40)
        made = 0
        while h.engine and h.session.accepts(min(h.engine)):
            h.audio(min(h.engine), 12_000, final=made % 4 == 3)
            made += 1
            h.wait(0.01)
        assert 2.0 <= made * 0.5 <= 3.5
        before = len(h.wire)
        assert resumed(h, before)["replayed"] == 0
        h.take()
        assert sum(p.header.samples for p in h.packets()) >= 2.0 * 24_000
        assert [p.header.sequence for p in h.packets()] == list(range(len(h.packets())))

    def test_silence_while_the_connection_was_lost_is_no_underrun(self) -> None:
        h = resumable()
        h.send("text.append", text=TEXT)
        h.audio(0, 4800)
        h.take()
        h.wait(20.0)
        h.audio(0, 4800, final=True)
        h.session.resume(len(h.wire), h.now)
        h.take()
        assert h.observer.underruns == []
        assert len(h.packets()) > 10

    def test_the_end_can_be_missed_too(self) -> None:
        h = resumable()
        h.send("text.append", text=TEXT)
        h.send("session.end")
        h.speak_all()
        assert h.types()[-2:] == ["session.ended", "Close"]
        h.out.clear()
        resumed(h, len(h.wire) - 2)
        h.take()
        assert h.types() == ["session.resumed", "turn.done", "session.ended", "Close"]

    def test_a_refused_resume_changes_nothing(self) -> None:
        h = resumable(replay_bytes=400)
        h.send("text.append", text=TEXT)
        h.speak_all()
        sent = len(h.wire)
        for received, code in ((0, "replay_gap"), (sent + 1, "bad_field")):
            with pytest.raises(ProtocolError) as refused:
                h.session.resume(received, h.now)
            assert refused.value.code == code
        h.send("ping")
        (pong,) = h.take()
        assert isinstance(pong, dict)
        assert pong["type"] == "pong"

    def test_a_session_that_cannot_be_resumed_keeps_nothing(self) -> None:
        h = Harness()
        h.send("text.append", text=TEXT)
        h.speak_all()
        assert any(isinstance(item, Packet) for item in h.out)
        with pytest.raises(ProtocolError) as gap:
            h.session.resume(len(h.wire) - 1, h.now)
        assert gap.value.code == "replay_gap"

    def test_the_token_is_not_in_what_names_the_session_in_logs(self) -> None:
        h = Harness(start=None)
        h.send("session.start", resume=True)
        h.take()
        started = json.loads(str(h.wire[0]))
        assert started["token"] not in started["session"]
