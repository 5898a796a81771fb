from __future__ import annotations

import numpy as np
import pytest
from fake_engine import tone
from session_harness import Harness

from engine.api import OFFLINE, SAMPLE_RATE, AudioChunk
from gateway.actions import Close
from gateway.protocol import FORMATS, AudioFlag, ServerDraining
from gateway.settings import Settings

SENTENCE = "This is the first sentence. "
DRAINING = ServerDraining(deadline_ms=30_000, retry_after_ms=0, url="wss://other.example")
SECOND = "And here comes the second one. "
THIRD = "A third one ends it all."


class TestStart:
    def test_everything_in_force_is_echoed(self) -> None:
        h = Harness(start=None)
        h.send(
            "session.start",
            voice="bao",
            language="zh",
            speed=1.25,
            seed=7,
            frame_ms=40,
            format="pcm_s16le",
            captions=False,
            live=False,
            emotion="glad",
        )
        (started,) = h.take()
        assert isinstance(started, dict)
        limits = started.pop("limits")
        assert started == {
            "type": "session.started",
            "protocol": 1,
            "session": "test",
            "voice": "bao",
            "language": "zh",
            "speed": 1.25,
            "style": "",
            "seed": 7,
            "control_tags": False,
            "captions": False,
            "live": False,
            "interrupt": False,
            "audio": {
                "format": "pcm_s16le",
                "sample_rate": 24000,
                "channels": 1,
                "frame_ms": 40,
                "frame_samples": 960,
                "pre_skip": 0,
                "clause_pause_ms": 160,
                "sentence_pause_ms": 320,
                "paragraph_pause_ms": 480,
            },
            "voices": ["ann", "bao"],
            "styles": [],
            "unknown": ["emotion"],
        }
        assert limits["append_chars"] == Settings().max_append_chars
        assert (limits["min_speed"], limits["max_speed"]) == (0.5, 2.0)

    @pytest.mark.parametrize(
        ("values", "code", "field", "available"),
        [
            ({"voice": "zoe"}, "unknown_voice", "voice", ["ann", "bao"]),
            ({"format": "mp3"}, "unknown_format", "format", sorted(FORMATS)),
            ({"language": "fr"}, "unsupported_language", "language", ["auto", "en", "zh"]),
            ({"speed": 2.1}, "bad_speed", "speed", None),
            ({"speed": 0.4}, "bad_speed", "speed", None),
        ],
    )
    def test_a_refused_start_can_be_sent_again(
        self, values: dict[str, object], code: str, field: str, available: list[str] | None
    ) -> None:
        h = Harness(start=None)
        h.send("session.start", **values)
        h.send("session.start")
        refused, started = h.take()
        assert isinstance(refused, dict)
        assert (refused["code"], refused["field"], refused["fatal"]) == (code, field, False)
        assert refused.get("available") == available
        assert refused["request"] == "session.start"
        assert isinstance(started, dict)
        assert started["type"] == "session.started"

    def test_nothing_but_ping_comes_before_it(self) -> None:
        h = Harness(start=None)
        for kind, values in (
            ("text.append", {"text": SENTENCE}),
            ("text.flush", {}),
            ("turn.end", {}),
            ("turn.cancel", {}),
            ("playback", {"turn": 1, "played_ms": 1}),
            ("session.update", {}),
            ("session.end", {}),
        ):
            h.send(kind, **values)
        h.send("ping", id="a")
        *errors, pong = h.take()
        assert [error["code"] for error in errors] == ["not_started"] * 7  # type: ignore[index]
        assert pong == {"type": "pong", "id": "a"}

    def test_it_comes_once(self) -> None:
        h = Harness()
        h.send("session.start")
        h.take()
        assert h.messages("error")[0]["code"] == "already_started"

    def test_it_has_to_come_in_time(self) -> None:
        h = Harness(start=None)
        h.wait(Settings().start_timeout_seconds - 0.1)
        assert h.take() == []
        h.wait(0.2)
        error, close = h.take()
        assert isinstance(error, dict)
        assert (error["code"], error["fatal"]) == ("start_timeout", True)
        assert close == Close(1008, "start_timeout")
        assert h.session.deadline is None

    def test_binary_and_broken_messages_change_nothing(self) -> None:
        h = Harness()
        h.raw(b"\x00")
        h.raw("{")
        h.send("text.append", text=SENTENCE)
        h.send("turn.end")
        h.speak_all()
        assert [error["code"] for error in h.messages("error")] == [
            "binary_not_accepted",
            "bad_json",
        ]
        assert h.messages("turn.done")[0]["pieces"] == 1


def test_a_long_text_is_read_in_parts_and_keeps_its_order() -> None:
    text = "This is one sentence, and it is not the last of them. " * 60
    parts = Harness(Settings(pieces_ahead=100), reads_on=False)
    parts.send("text.append", text=text)
    begun = len(parts.session._turns.queue[0].pieces)
    assert 0 < begun < 40
    assert parts.session.unread
    assert parts.session.deadline is not None
    assert parts.session.deadline <= parts.now + 0.001
    parts.wait(0.0011)
    assert len(parts.session._turns.queue[0].pieces) > begun
    # What comes next finds all of it read.
    parts.send("turn.end")
    assert not parts.session.unread
    whole = Harness(Settings(pieces_ahead=100))
    whole.send("text.append", text=text)
    whole.send("turn.end")
    pieces, expected = (each.session._turns.queue[0].pieces for each in (parts, whole))
    assert [piece.text for piece in pieces] == [piece.text for piece in expected]
    assert "".join(piece.text for piece in pieces) == text


def test_nothing_of_a_long_text_is_lost_when_the_server_drains() -> None:
    text = "This is one sentence, and it is not the last of them. " * 60
    h = Harness(Settings(audio_buffer_seconds=1e9), reads_on=False)
    h.send("text.append", text=text)
    h.session.drain(h.now, DRAINING)
    h.settle()
    h.session.hurry(h.now)
    h.settle()
    h.take()
    [cancelled] = h.messages("turn.cancelled")
    assert cancelled["spoken"] + cancelled["unspoken"] == text


def test_a_new_speaker_waits_until_its_loudness_can_be_told() -> None:
    h = Harness()
    h.send("text.append", text="This is said by one voice.")
    h.send("session.update", voice="bao", scope="piece")
    h.send("text.append", text="And this is by another.")
    h.send("turn.end")
    h.audio(0, 24_000, 0.4, final=True)
    h.take()
    h.out.clear()
    h.audio(1, 4_800, 0.1)
    h.take()
    assert not h.packets()
    h.audio(1, 4_800, 0.1)
    h.take()
    [first, *_] = [packet for packet in h.packets() if np.abs(packet.pcm).max() > 0.05]
    assert np.abs(first.pcm).max() == pytest.approx(0.1 * 10 ** (9.0 / 20.0), rel=0.05)


def test_a_new_speaker_who_says_little_is_not_waited_for() -> None:
    h = Harness()
    h.send("text.append", text="This is said by one voice.")
    h.send("session.update", voice="bao", scope="piece")
    h.send("text.append", text="Yes.")
    h.send("turn.end")
    h.audio(0, 24_000, 0.4, final=True)
    h.take()
    h.audio(1, 4_800, 0.1, final=True)
    h.take()
    assert h.messages("turn.done")


class TestTurns:
    def test_a_turn_from_text_to_done(self) -> None:
        h = Harness()
        h.send("text.append", text=SENTENCE + "And")
        h.send("text.append", text=" so on.")
        h.send("turn.end")
        h.speak_all(4800)
        assert h.types() == [
            "turn.started",
            "caption",
            "audio",
            "caption",
            "caption",
            "audio",
            "caption",
            "audio",
            "turn.done",
        ]
        first, done_first, second, done_second = h.messages("caption")
        assert (first["text"], first["start"], first["end"]) == (SENTENCE, 0, 28)
        assert (first["start_sample"], first["final"], "end_sample" in first) == (0, False, False)
        assert (done_first["end_sample"], done_first["final"]) == (4800, True)
        assert (second["text"], second["start"], second["end"]) == ("And so on.", 28, 38)
        assert second["start_sample"] == 4800 + 7680
        assert done_second["end_sample"] == 4800 + 7680 + 4800
        done = h.messages("turn.done")[0]
        assert done == {
            "type": "turn.done",
            "turn": 1,
            "samples": 4800 + 7680 + 4800 + 1680,
            "ms": 790,
            "packets": len(h.packets()),
            "pieces": 2,
            "failed": 0,
            "characters": 38,
        }
        assert sum(packet.header.samples for packet in h.packets()) == done["samples"]
        assert h.observer.tokens == (20, 16)

    def test_the_first_packet_of_a_turn_is_flagged_and_the_pauses_too(self) -> None:
        h = Harness()
        for _ in range(2):
            h.send("text.append", text=SENTENCE)
            h.send("turn.end")
            h.speak_all(4800)
        flags = [packet.header.flags for packet in h.packets(2)]
        assert flags[0] == AudioFlag.FIRST
        assert set(flags[1:11]) == {0}
        assert set(flags[11:]) == {AudioFlag.PAUSE}
        assert [p.header.sequence for p in h.packets()] == list(range(len(h.packets())))

    def test_text_of_the_next_turn_may_come_while_one_is_spoken(self) -> None:
        h = Harness()
        for text in (SENTENCE, SECOND, THIRD):
            h.send("text.append", text=text)
            h.send("turn.end")
        h.speak_all()
        assert [m["turn"] for m in h.messages("turn.started")] == [1, 2, 3]
        assert [m["turn"] for m in h.messages("turn.done")] == [1, 2, 3]
        turns = [packet.header.turn for packet in h.packets()]
        assert turns == sorted(turns)

    def test_empty_text_opens_nothing(self) -> None:
        h = Harness()
        h.send("text.append", text="")
        assert h.take() == []
        h.send("turn.end")
        h.take()
        assert h.messages("error")[0]["code"] == "no_turn"

    @pytest.mark.parametrize("text", [" ", "...", "。！", "\n\n", "—"])
    def test_marks_alone_end_a_turn_without_audio(self, text: str) -> None:
        h = Harness()
        h.send("text.append", text=text)
        h.send("turn.end")
        h.speak_all()
        assert h.requests == []
        assert h.types() == ["turn.started", "turn.done"]
        assert h.messages("turn.done")[0]["packets"] == 0

    def test_captions_can_be_left_out(self) -> None:
        h = Harness(start={"captions": False})
        h.send("text.append", text=SENTENCE)
        h.send("turn.end")
        h.speak_all()
        assert h.types() == ["turn.started", "audio", "turn.done"]

    def test_an_update_holds_from_the_next_turn_on(self) -> None:
        h = Harness(start={"voice": "ann", "seed": 1})
        h.send("text.append", text=SENTENCE + "And")
        h.send("session.update", voice="bao", speed=1.5)
        h.send("text.append", text=" more.")
        h.send("turn.end")
        h.send("text.append", text=THIRD)
        h.send("turn.end")
        h.speak_all()
        assert [(r.voice, r.speed, r.seed) for r in h.requests] == [
            ("ann", 1.0, 1),
            ("ann", 1.0, 1),
            ("bao", 1.5, 1),
        ]
        assert h.messages("session.updated") == [
            {
                "type": "session.updated",
                "voice": "bao",
                "language": "auto",
                "speed": 1.5,
                "style": "",
                "seed": 1,
            }
        ]

    def test_a_refused_update_changes_nothing(self) -> None:
        h = Harness(start={"voice": "ann"})
        h.send("session.update", voice="bao", language="fr")
        h.send("text.append", text=SENTENCE)
        h.send("turn.end")
        h.speak_all()
        assert h.messages("error")[0]["code"] == "unsupported_language"
        assert h.requests[0].voice == "ann"

    def test_session_end_speaks_what_is_open(self) -> None:
        h = Harness()
        h.send("text.append", text="No full stop")
        h.send("session.end")
        h.send("session.end")
        h.send("text.append", text="Too late.")
        h.speak_all()
        assert h.types() == [
            "turn.started",
            "error",
            "caption",
            "audio",
            "caption",
            "audio",
            "turn.done",
            "session.ended",
            "Close",
        ]
        assert h.messages("error")[0]["code"] == "session_ending"
        assert h.messages("session.ended")[0] == {
            "type": "session.ended",
            "turns": 1,
            "samples": h.messages("turn.done")[0]["samples"],
            "characters": 12,
        }
        assert h.out[-1] == Close(1000, "session ended")

    def test_session_end_of_an_idle_session_is_immediate(self) -> None:
        h = Harness()
        h.send("session.end")
        h.take()
        assert h.types() == ["session.ended", "Close"]

    def test_draining_speaks_what_is_open_and_says_where_to_go(self) -> None:
        h = Harness()
        h.send("text.append", text=SENTENCE)
        h.session.drain(h.now, DRAINING)
        h.session.drain(h.now, DRAINING)
        h.settle()
        h.send("text.append", text=" The writer finishes the turn.")
        h.send("turn.start")
        h.take()
        assert h.messages("error")[0]["code"] == "session_ending"
        h.send("turn.end")
        h.speak_all()
        [notice] = h.messages("server.draining")
        assert (notice["url"], notice["deadline_ms"]) == ("wss://other.example", 30_000)
        [done] = h.messages("turn.done")
        assert done["characters"] == len(SENTENCE) + len(" The writer finishes the turn.")
        assert h.out[-1] == Close(1012, "draining")

    def test_an_idle_session_is_drained_at_once(self) -> None:
        h = Harness()
        h.session.drain(h.now, DRAINING)
        h.take()
        assert h.types() == ["server.draining", "session.ended", "Close"]

    def test_what_is_not_spoken_at_the_deadline_is_told(self) -> None:
        h = Harness()
        h.send("text.append", text=SENTENCE)
        h.session.drain(h.now, DRAINING)
        h.session.hurry(h.now)
        h.settle()
        h.take()
        [cancelled] = h.messages("turn.cancelled")
        assert cancelled["spoken"] + cancelled["unspoken"] == SENTENCE
        assert h.types()[-2:] == ["session.ended", "Close"]


class TestPreemption:
    def test_turns_wait_for_each_other_unless_told_otherwise(self) -> None:
        h = Harness()
        for _ in range(2):
            h.send("turn.start")
            h.send("text.append", text=SENTENCE)
            h.send("turn.end")
        h.speak_all()
        assert [m["turn"] for m in h.messages("turn.done")] == [1, 2]
        assert not h.messages("turn.cancelled")

    def test_a_new_turn_may_take_the_place_of_all_others(self) -> None:
        h = Harness()
        for _ in range(2):
            h.send("text.append", text=SENTENCE)
            h.send("turn.end")
        h.audio(h.keys[0], 4800)
        h.take()
        h.out.clear()
        h.send("turn.start", interrupt=True, played_samples=0)
        h.send("text.append", text="Stop. ")
        h.send("turn.end")
        h.speak_all()
        assert h.types()[:3] == ["turn.cancelled", "turn.cancelled", "turn.started"]
        first, second = h.messages("turn.cancelled")
        assert (first["turn"], first["unspoken"], first["estimated"]) == (1, SENTENCE, False)
        assert (second["turn"], second["unspoken"]) == (2, SENTENCE)
        assert {packet.header.turn for packet in h.packets()} == {3}
        assert h.cancelled == [0]

    def test_a_session_may_want_that_of_every_turn(self) -> None:
        h = Harness(start={"interrupt": True})
        for _ in range(3):
            h.send("text.append", text=SENTENCE)
            h.send("turn.end")
        h.speak_all()
        assert [m["turn"] for m in h.messages("turn.cancelled")] == [1, 2]
        assert [m["turn"] for m in h.messages("turn.done")] == [3]

    def test_what_waits_to_be_cancelled_takes_no_room(self) -> None:
        h = Harness(Settings(max_backlog_chars=40, max_open_turns=1), {"interrupt": True})
        for _ in range(3):
            h.send("text.append", text=SENTENCE)
            h.send("turn.end")
            h.wait(0.1)
        h.take()
        assert not h.messages("error")

    def test_a_start_ends_the_open_turn(self) -> None:
        h = Harness()
        h.send("text.append", text="Not yet a sentence")
        h.send("turn.start")
        assert [request.text for request in h.requests] == ["Not yet a sentence"]
        h.send("text.append", text="Another.")
        h.send("turn.end")
        h.speak_all()
        assert [m["characters"] for m in h.messages("turn.done")] == [18, 8]

    def test_a_start_is_refused_whole(self) -> None:
        h = Harness(Settings(max_open_turns=1))
        h.send("text.append", text="Not yet a sentence")
        h.send("turn.start")
        h.send("session.end")
        h.send("turn.start")
        h.take()
        codes = [(m["code"], m["request"]) for m in h.messages("error")]
        assert codes == [("too_many_turns", "turn.start"), ("session_ending", "turn.start")]
        assert h.observer.turns["started"] == 1

    def test_a_turn_without_text_ends_without_sound(self) -> None:
        h = Harness()
        h.send("turn.start")
        h.send("turn.start", interrupt=True)
        h.send("turn.end")
        h.take()
        assert h.messages("turn.cancelled")[0]["unspoken"] == ""
        assert h.messages("turn.done")[0]["pieces"] == 0


class TestVoicesWithinATurn:
    def test_text_after_the_change_is_spoken_in_the_new_way(self) -> None:
        h = Harness(start={"seed": 5})
        h.send("text.append", text="One way of saying it, ")
        h.send("session.update", voice="bao", speed=1.5, scope="piece")
        h.send("text.append", text="and another one.")
        h.send("turn.end")
        h.speak_all()
        assert [(r.text, r.voice, r.speed, r.seed) for r in h.requests] == [
            ("One way of saying it,", "default", 1.0, 5),
            ("and another one.", "bao", 1.5, 5),
        ]
        (updated,) = h.messages("session.updated")
        assert (updated["turn"], updated["voice"]) == (1, "bao")
        assert [m["pieces"] for m in h.messages("turn.done")] == [2]

    def test_another_voice_does_not_go_on_from_the_last_piece_but_another_speed_does(self) -> None:
        for change, context in ({"speed": 1.5}, ("context", 0)), ({"voice": "bao"}, None):
            h = Harness()
            h.send("text.append", text="One. ")
            h.send("session.update", scope="piece", **change)
            h.send("text.append", text="Two.")
            h.send("turn.end")
            h.speak_all()
            assert [request.context for request in h.requests] == [None, context]

    def test_pieces_that_wait_keep_their_voice(self) -> None:
        h = Harness()
        h.send("text.append", text="One. Two. Three. Four. ")
        h.send("session.update", voice="bao", scope="piece")
        h.send("turn.end")
        h.speak_all()
        assert {request.voice for request in h.requests} == {"default"}

    def test_without_an_open_turn_it_holds_from_the_next_on(self) -> None:
        h = Harness()
        h.send("session.update", voice="bao", scope="piece")
        h.send("text.append", text=SENTENCE)
        h.send("turn.end")
        h.speak_all()
        assert "turn" not in h.messages("session.updated")[0]
        assert h.requests[0].voice == "bao"


class TestFlush:
    def test_a_flush_is_answered_after_its_audio(self) -> None:
        h = Harness()
        h.send("text.append", text="Just a fragment")
        h.send("text.flush", id="f1")
        h.speak_all()
        h.send("text.append", text=" and the rest")
        h.send("turn.end")
        h.speak_all()
        assert [r.text for r in h.requests] == ["Just a fragment", "and the rest"]
        kinds = h.types()
        assert kinds.index("flush.done") < kinds.index("turn.done")
        flushed = h.messages("flush.done")[0]
        assert (flushed["id"], flushed["turn"], flushed["cancelled"]) == ("f1", 1, False)
        assert flushed["samples"] == 4800 + 1680

    def test_without_a_turn_it_is_answered_at_once_and_opens_none(self) -> None:
        h = Harness()
        h.send("text.flush", id="x")
        h.send("text.flush")
        assert [m for m in h.take() if isinstance(m, dict)] == [
            {"type": "flush.done", "id": "x", "samples": 0, "cancelled": False},
            {"type": "flush.done", "samples": 0, "cancelled": False},
        ]
        assert h.observer.turns["started"] == 0

    def test_flushes_keep_their_order(self) -> None:
        h = Harness()
        for name in ("a", "b", "c"):
            h.send("text.append", text=f"Fragment {name}")
            h.send("text.flush", id=name)
        h.send("turn.end")
        h.speak_all()
        assert [m["id"] for m in h.messages("flush.done")] == ["a", "b", "c"]

    def test_there_is_a_limit(self) -> None:
        h = Harness(Settings(max_pending_flushes=2))
        h.send("text.append", text=SENTENCE)
        for _ in range(3):
            h.send("text.flush")
        h.take()
        assert h.messages("error")[0]["code"] == "too_many_flushes"

    def test_a_cancelled_turn_answers_its_flushes(self) -> None:
        h = Harness()
        h.send("text.append", text=SENTENCE)
        h.send("text.flush", id="f")
        h.send("turn.cancel")
        h.take()
        assert h.types() == ["turn.started", "flush.done", "turn.cancelled"]
        assert h.messages("flush.done")[0]["cancelled"] is True


class TestLimits:
    def test_one_message_of_text(self) -> None:
        h = Harness(Settings(max_append_chars=10))
        h.send("text.append", text="é" * 11)
        h.send("text.append", text="é" * 10)
        h.take()
        assert h.messages("error")[0]["code"] == "text_too_long"
        assert h.types() == ["error", "turn.started"]

    def test_text_that_waits_is_paused_then_refused_then_resumed(self) -> None:
        h = Harness(Settings(max_backlog_chars=100, max_append_chars=100))
        for _ in range(4):
            h.send("text.append", text=SENTENCE)
        assert [m["type"] for m in h.take() if isinstance(m, dict)] == [
            "turn.started",
            "flow.pause",
            "error",
        ]
        assert h.messages("flow.pause")[0]["backlog"] == 84
        assert h.messages("error")[0]["code"] == "backlog_full"
        h.speak_all()
        assert h.messages("flow.resume")[0]["backlog"] <= 50
        h.send("text.append", text=SENTENCE)
        h.send("turn.end")
        h.speak_all()
        assert h.messages("turn.done")[0]["characters"] == 28 * 4

    def test_a_cancel_resumes_the_writer(self) -> None:
        h = Harness(Settings(max_backlog_chars=100))
        for _ in range(3):
            h.send("text.append", text=SENTENCE)
        h.send("turn.cancel")
        h.take()
        assert h.types() == ["turn.started", "flow.pause", "turn.cancelled", "flow.resume"]

    def test_text_that_comes_too_fast_is_paused_then_refused_then_resumed(self) -> None:
        h = Harness(Settings(max_backlog_chars=100, chars_per_second=10.0), {"interrupt": True})
        for _ in range(9):
            h.send("text.append", text="x" * 20)
            h.send("turn.cancel")
        h.take()
        assert not h.messages("error")
        assert len(h.messages("flow.pause")) == 1
        h.send("text.append", text="x" * 30)
        h.take()
        (error,) = h.messages("error")
        assert (error["code"], error["retry_after_ms"]) == ("text_rate", 1001)
        h.wait(1.01)
        h.send("text.append", text="x" * 30)
        h.send("turn.cancel")
        h.wait(9.9)
        h.take()
        assert len(h.messages("error")) == 1
        assert not h.messages("flow.resume")
        h.wait(0.2)
        h.take()
        assert len(h.messages("flow.resume")) == 1
        assert h.session.deadline is None

    def test_turns_that_wait(self) -> None:
        h = Harness(Settings(max_open_turns=2))
        for text in (SENTENCE, SECOND, THIRD):
            h.send("text.append", text=text)
            h.send("turn.end")
        h.take()
        assert [m["code"] for m in h.messages("error")] == ["too_many_turns", "no_turn"]

    def test_one_turn(self) -> None:
        h = Harness(Settings(max_turn_chars=40))
        h.send("text.append", text=SENTENCE)
        h.send("text.append", text=SECOND)
        h.take()
        assert h.messages("error")[0]["code"] == "turn_too_long"

    def test_a_client_that_sends_and_never_reads_is_cut_off(self) -> None:
        h = Harness()
        for _ in range(1000):
            h.send("ping")
        h.take()
        assert h.messages("error")[0]["code"] == "slow_reader"
        assert h.out[-1] == Close(1008, "slow_reader")
        assert len(h.out) < 300


class TestCancel:
    def test_nothing_of_the_turn_follows(self) -> None:
        h = Harness()
        h.send("text.append", text=SENTENCE + SECOND + THIRD)
        h.send("turn.end")
        h.audio(h.keys[0], 48_000)
        h.take(20)
        h.send("turn.cancel")
        h.audio(h.keys[0], 48_000, final=True)
        h.fail(h.keys[0])
        taken = h.take()
        assert [m["type"] for m in taken if isinstance(m, dict)] == ["turn.cancelled"]
        assert len(taken) == 1
        assert h.cancelled == [h.keys[0]]
        assert h.engine == {}
        assert h.observer.turns == {"started": 1, "cancelled": 1}
        h.wait(60)
        assert h.take() == []

    def test_position_given_splits_the_text_by_what_was_heard(self) -> None:
        h = Harness()
        h.send("text.append", text=SENTENCE + SECOND + THIRD)
        h.send("turn.end")
        h.speak_all(28_000)
        h.send("turn.cancel", turn=1, played_samples=14_000)
        (cancelled,) = h.take()
        assert isinstance(cancelled, dict)
        assert cancelled["spoken"] == "This is the"
        assert cancelled["spoken"] + cancelled["unspoken"] == SENTENCE + SECOND + THIRD
        assert (cancelled["heard_samples"], cancelled["heard_ms"]) == (14_000, 583)
        assert cancelled["sent_samples"] == h.messages("turn.done")[0]["samples"]
        assert (cancelled["estimated"], cancelled["completed"]) == (False, True)

    def test_without_a_position_it_is_reckoned(self) -> None:
        h = Harness()
        h.send("text.append", text=SENTENCE + SECOND)
        h.audio(h.keys[0], 28_000, final=True)
        h.take()
        h.wait(0.1 + 0.5)
        h.send("turn.cancel")
        h.take()
        cancelled = h.messages("turn.cancelled")[0]
        assert cancelled["heard_ms"] in (499, 500)
        assert (cancelled["spoken"], cancelled["estimated"]) == ("This is the", True)
        assert cancelled["completed"] is False

    def test_playback_reports_correct_the_reckoning(self) -> None:
        h = Harness()
        h.send("text.append", text=SENTENCE + SECOND)
        h.audio(h.keys[0], 28_000, final=True)
        h.take()
        h.wait(3)
        h.send("playback", turn=1, played_ms=250, paused=True)
        h.wait(3)
        h.send("turn.cancel")
        h.take()
        assert h.messages("turn.cancelled")[0]["heard_ms"] == 250

    def test_a_report_needs_a_position_and_a_turn_that_was_sent(self) -> None:
        h = Harness()
        h.send("playback", turn=1)
        h.send("playback", turn=1, played_ms=3)
        h.take()
        assert [m["code"] for m in h.messages("error")] == ["bad_field"]

    def test_nothing_heard_is_nothing_spoken(self) -> None:
        h = Harness()
        h.send("text.append", text=SENTENCE)
        h.send("turn.cancel", played_ms=5000)
        h.take()
        cancelled = h.messages("turn.cancelled")[0]
        assert (cancelled["spoken"], cancelled["unspoken"]) == ("", SENTENCE)
        assert (cancelled["sent_ms"], cancelled["heard_ms"]) == (0, 0)

    def test_all_heard_is_all_spoken(self) -> None:
        h = Harness()
        h.send("text.append", text=SENTENCE + "  ")
        h.send("turn.end")
        h.speak_all()
        h.send("turn.cancel", turn=1)
        h.wait(0)
        h.send("turn.cancel", turn=1)
        h.take()
        assert h.messages("turn.cancelled")[0]["unspoken"] != ""
        assert h.messages("error")[0]["code"] == "no_turn"
        h.send("text.append", text=SENTENCE + "  ")
        h.send("turn.end")
        h.speak_all()
        h.wait(10)
        h.send("turn.cancel", turn=2)
        h.take()
        assert h.messages("turn.cancelled")[1]["unspoken"] == ""

    def test_a_turn_heard_out_is_not_there_any_more(self) -> None:
        h = Harness()
        h.send("text.append", text=SENTENCE)
        h.send("turn.end")
        h.speak_all()
        h.wait(10)
        h.send("turn.cancel")
        h.send("turn.cancel", turn=9)
        h.take()
        assert [m["code"] for m in h.messages("error")] == ["no_turn", "no_turn"]

    def test_all_turns_not_yet_heard_go_at_once(self) -> None:
        h = Harness()
        h.send("text.append", text=SENTENCE)
        h.send("turn.end")
        h.speak_all(28_000)
        h.send("text.append", text=SECOND)
        h.send("turn.end")
        h.send("text.append", text=THIRD)
        h.send("turn.cancel", played_samples=14_000)
        h.send("text.append", text="Yes? ")
        h.send("turn.end")
        h.speak_all()
        cancelled = h.messages("turn.cancelled")
        assert [(m["turn"], m["completed"]) for m in cancelled] == [
            (1, True),
            (2, False),
            (3, False),
        ]
        assert [m["heard_samples"] for m in cancelled] == [14_000, 0, 0]
        assert [m["estimated"] for m in cancelled] == [False, False, False]
        assert h.messages("turn.done")[-1]["turn"] == 4

    def test_one_turn_by_number_leaves_the_others(self) -> None:
        h = Harness()
        for text in (SENTENCE, SECOND, THIRD):
            h.send("text.append", text=text)
            h.send("turn.end")
        h.send("turn.cancel", turn=2)
        h.speak_all()
        assert [m["turn"] for m in h.messages("turn.done")] == [1, 3]
        assert [r.text for r in h.requests] == [SENTENCE.strip(), THIRD]

    def test_the_listener_starts_afresh_after_it(self) -> None:
        h = Harness()
        h.send("text.append", text=SENTENCE + "More.")
        h.audio(h.keys[0], 20 * SAMPLE_RATE, final=True)
        h.take()
        h.send("turn.cancel")
        h.send("text.append", text=SECOND)
        h.send("turn.end")
        assert h.requests[-1].text == SECOND.strip()
        assert h.requests[-1].priority == 0


class TestPieces:
    def test_the_next_piece_goes_on_from_the_last(self) -> None:
        h = Harness()
        h.send("text.append", text=SENTENCE + SECOND + THIRD)
        h.send("turn.end")
        h.speak_all()
        contexts = [request.context for request in h.requests]
        assert contexts == [None, ("context", h.keys[0]), ("context", h.keys[1])]

    def test_a_new_turn_goes_on_from_nothing(self) -> None:
        h = Harness()
        for _ in range(2):
            h.send("text.append", text=SENTENCE)
            h.send("turn.end")
            h.speak_all()
        assert h.requests[1].context is None

    def test_a_slow_piece_is_joined_by_the_next_and_the_order_kept(self) -> None:
        h = Harness()
        h.send("text.append", text=SENTENCE + SECOND + THIRD)
        h.send("turn.end")
        assert len(h.engine) == 1
        h.audio(h.keys[0], 4800, 0.1)
        h.wait(1.0)
        assert len(h.engine) == 2
        h.audio(h.keys[1], 4800, 0.2, final=True)
        h.take()
        assert len(h.engine) == 2
        h.audio(h.keys[2], 4800, 0.3, final=True)
        h.audio(h.keys[0], 4800, 0.1, final=True)
        h.take()
        audio = np.concatenate([packet.pcm for packet in h.packets()])
        steady = [np.flatnonzero(np.isclose(audio, level, atol=1e-4)) for level in (0.1, 0.2, 0.3)]
        assert [at.size // 100 for at in steady] == [96, 48, 48]
        assert steady[0][-1] < steady[1][0] < steady[1][-1] < steady[2][0]
        assert h.requests[1].context is None

    def test_no_more_pieces_than_allowed_are_in_the_engine(self) -> None:
        h = Harness(Settings(pieces_ahead=2))
        h.send("text.append", text=(SENTENCE + SECOND) * 4)
        h.audio(h.keys[0], 100)
        h.wait(5)
        assert len(h.engine) == 2

    def test_a_live_listener_far_ahead_waits(self) -> None:
        h = Harness()
        h.send("text.append", text=SENTENCE + SECOND + THIRD)
        h.send("turn.end")
        h.audio(h.keys[0], 10 * SAMPLE_RATE, final=True)
        h.take()
        assert h.engine == {}
        # Ten seconds, the pause after them and the jitter buffer, less the six to stay ahead.
        h.wait(4.3)
        assert h.engine == {}
        h.wait(0.2)
        assert len(h.engine) == 1

    def test_a_file_does_not_wait_and_goes_last(self) -> None:
        h = Harness(start={"live": False})
        h.send("text.append", text=SENTENCE + SECOND + THIRD)
        h.send("turn.end")
        h.audio(h.keys[0], 10 * SAMPLE_RATE, final=True)
        assert len(h.engine) == 1
        assert {request.priority for request in h.requests} == {OFFLINE}

    def test_silence_has_priority_then_deadlines(self) -> None:
        h = Harness()
        h.send("text.append", text=SENTENCE + SECOND)
        h.send("turn.end")
        h.audio(h.keys[0], SAMPLE_RATE, final=True)
        h.take()
        assert h.requests[0].priority == 0
        assert h.requests[1].priority == 1_001_000

    def test_a_quiet_writer_is_not_waited_for(self) -> None:
        h = Harness()
        h.send("text.append", text="One complete sentence.")
        assert [r.text for r in h.requests] == []
        h.wait(0.3)
        assert [r.text for r in h.requests] == ["One complete sentence."]
        h.speak_all()
        h.send("text.append", text=" some words that go on")
        h.wait(0.4)
        assert len(h.requests) == 1
        h.wait(10)
        assert [r.text for r in h.requests[1:]] == ["some words that go"]
        assert h.session.deadline is None

    def test_a_quiet_writer_is_waited_for_while_there_is_enough_to_hear(self) -> None:
        h = Harness()
        h.send("text.append", text=SENTENCE + "Then the words go on")
        h.audio(h.keys[0], 5 * SAMPLE_RATE, final=True)
        h.take()
        h.wait(3)
        assert len(h.requests) == 1
        h.wait(3)
        assert len(h.requests) == 2


class TestFaults:
    def test_a_piece_that_ran_on_to_its_limit_is_no_example_for_the_next(self) -> None:
        h = Harness()
        h.send("text.append", text=SENTENCE + SECOND)
        h.send("turn.end")
        h.audio(h.keys[0], 4800)
        h.take()
        chunk = AudioChunk(tone(4800), final=True, context="babble", truncated=True)
        del h.engine[h.keys[0]]
        h.session.audio(h.keys[0], chunk, h.now)
        h.settle()
        assert h.requests[1].context is None
        assert h.observer.pieces == {"truncated": 1}

    def test_a_failed_piece_is_named_and_the_turn_goes_on(self) -> None:
        h = Harness()
        h.send("text.append", text=SENTENCE + SECOND + THIRD)
        h.send("turn.end")
        h.audio(h.keys[0], 4800, final=True)
        h.fail(h.keys[1], "runaway")
        h.speak_all()
        (error,) = h.messages("error")
        assert (error["code"], error["message"], error["fatal"]) == ("runaway", "It failed.", False)
        assert (error["turn"], error["piece"]) == (1, 1)
        assert (error["start"], error["end"]) == (28, 59)
        done = h.messages("turn.done")[0]
        assert (done["pieces"], done["failed"]) == (3, 1)
        assert h.observer.errors == {"runaway": 1}

    def test_what_was_made_before_the_fault_is_heard(self) -> None:
        h = Harness()
        h.send("text.append", text=SENTENCE)
        h.send("turn.end")
        h.audio(h.keys[0], 48_000)
        h.take()
        h.fail(h.keys[0], "engine_restarting", retryable=True)
        h.take()
        assert len(h.requests) == 1
        assert h.messages("turn.done")[0]["samples"] == 48_000 + 1680
        assert h.messages("error")[0]["code"] == "engine_restarting"

    def test_a_piece_nobody_heard_is_tried_again(self) -> None:
        h = Harness(start={"seed": 5})
        h.send("text.append", text=SENTENCE)
        h.send("turn.end")
        h.fail(h.keys[0], "engine_restarting", retryable=True)
        assert h.engine == {}
        h.wait(0.11)
        assert list(h.engine) == [h.keys[0]]
        assert h.requests[0].seed == 5
        assert h.requests[1].seed != 5
        h.speak_all()
        assert h.messages("error") == []
        assert h.observer.pieces == {"retried": 1, "done": 1}

    def test_audio_waiting_behind_another_piece_does_not_count_as_heard(self) -> None:
        h = Harness()
        h.send("text.append", text=SENTENCE + SECOND)
        h.send("turn.end")
        h.audio(h.keys[0], 240)
        h.wait(1)
        h.audio(h.keys[1], 4800)
        h.fail(h.keys[1], "frame_ring_overrun", retryable=True)
        h.audio(h.keys[0], 240, final=True)
        h.speak_all(4800)
        done = h.messages("turn.done")[0]
        assert done["samples"] == 480 + 7680 + 4800 + 1680

    def test_trying_again_has_an_end(self) -> None:
        h = Harness(Settings(piece_retry_seconds=2.0))
        h.send("text.append", text=SENTENCE + SECOND)
        h.send("turn.end")
        for _ in range(20):
            for key in list(h.engine):
                h.fail(key, "engine_restarting", retryable=True)
            h.wait(0.5)
        h.take()
        assert [m["code"] for m in h.messages("error")] == ["engine_restarting"] * 2
        assert h.messages("turn.done")[0]["failed"] == 2
        assert len(h.requests) < 20

    def test_a_forgotten_context_is_done_without(self) -> None:
        h = Harness()
        h.send("text.append", text=SENTENCE + SECOND)
        h.send("turn.end")
        h.audio(h.keys[0], 4800, final=True)
        assert h.requests[-1].context is not None
        h.fail(h.keys[1], "context_expired")
        h.wait(0.2)
        assert h.requests[-1].text == SECOND.strip()
        assert h.requests[-1].context is None

    def test_an_unknown_code_of_the_engine_stays_inside(self) -> None:
        h = Harness()
        h.send("text.append", text=SENTENCE)
        h.send("turn.end")
        h.fail(h.keys[0], "cuda_is_sad")
        h.take()
        error = h.messages("error")[0]
        assert error["code"] == "piece_failed"
        assert "It failed" not in error["message"]

    def test_a_silent_piece_has_a_caption_without_length(self) -> None:
        h = Harness()
        h.send("text.append", text=SENTENCE)
        h.send("turn.end")
        h.audio(h.keys[0], 4800, 0.0, final=True)
        h.take()
        (caption,) = h.messages("caption")
        assert (caption["start_sample"], caption["end_sample"], caption["final"]) == (0, 0, True)
        assert h.messages("turn.done")[0]["packets"] == 0


class TestBackPressure:
    def test_the_engine_is_held_when_nothing_is_taken(self) -> None:
        h = Harness(Settings(audio_buffer_seconds=5))
        h.send("text.append", text=SENTENCE)
        key = h.keys[0]
        assert h.session.accepts(key)
        h.audio(key, 5 * SAMPLE_RATE)
        assert not h.session.accepts(key)
        h.take(10)
        assert h.session.accepts(key)

    def test_the_piece_being_heard_is_never_starved_by_those_behind(self) -> None:
        h = Harness(Settings(audio_buffer_seconds=5))
        h.send("text.append", text=SENTENCE + SECOND)
        h.audio(h.keys[0], 240)
        h.wait(2)
        h.audio(h.keys[1], 10 * SAMPLE_RATE)
        assert not h.session.accepts(h.keys[1])
        assert h.session.accepts(h.keys[0])

    def test_a_piece_that_is_gone_may_end(self) -> None:
        h = Harness()
        assert h.session.accepts(77)

    def test_an_abandoned_session_cancels_everything(self) -> None:
        h = Harness()
        h.send("text.append", text=SENTENCE + SECOND)
        h.session.abandon()
        h.settle()
        assert h.engine == {}
        assert h.take() == []
        assert h.session.deadline is None
        assert h.observer.turns["abandoned"] == 1
        assert h.observer.pieces["abandoned"] == len(h.keys) > 0


class TestMeasures:
    def test_the_first_packet_counts_from_the_text_that_completes_a_piece(self) -> None:
        h = Harness()
        h.send("text.append", text="Hello there, my")
        h.wait(0.1)
        h.send("text.append", text=" friend. And")
        h.wait(0.04)
        h.audio(h.keys[0], 960)
        h.take()
        assert h.observer.first_packets == [pytest.approx(0.04)]
        assert h.observer.first_audibles == h.observer.first_packets

    def test_a_turn_behind_another_does_not_count(self) -> None:
        h = Harness()
        for text in (SENTENCE, SECOND):
            h.send("text.append", text=text)
            h.send("turn.end")
        h.speak_all(SAMPLE_RATE * 2)
        assert len(h.observer.first_packets) == 1

    def test_an_underrun_is_counted_while_text_was_there(self) -> None:
        h = Harness()
        h.send("text.append", text=SENTENCE)
        h.send("turn.end")
        h.audio(h.keys[0], 4800)
        h.take()
        h.wait(1.3)
        h.audio(h.keys[0], 4800, final=True)
        h.take()
        assert h.observer.underruns == [pytest.approx(1.0)]

    @pytest.mark.parametrize(
        ("late", "written", "calls"), [(0.27, 0.6, 1), (0.2, 0.6, 0), (0.27, 0.0, 0)]
    )
    def test_a_listener_who_nearly_runs_dry_is_a_close_call(
        self, late: float, written: float, calls: int
    ) -> None:
        h = Harness()
        h.send("text.append", text=SENTENCE)
        h.send("turn.end")
        h.wait(written)
        h.audio(h.keys[0], 4800)
        h.take()
        h.wait(late)  # of 0.3 s: what was sent, and the jitter buffer's
        h.audio(h.keys[0], 480)
        h.take()
        assert h.observer.close_calls == calls
        assert not h.observer.underruns

    def test_a_writer_without_words_is_no_underrun(self) -> None:
        h = Harness()
        h.send("text.append", text=SENTENCE)
        h.send("text.flush")
        h.audio(h.keys[0], 4800, final=True)
        h.take()
        h.wait(5)
        h.send("text.append", text=SECOND)
        h.send("turn.end")
        h.audio(h.keys[1], 4800, final=True)
        h.take()
        assert h.observer.underruns == []
