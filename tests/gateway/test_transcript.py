from __future__ import annotations

import asyncio
import json
import re
from itertools import pairwise

import pytest
from session_harness import Harness
from starlette.responses import Response
from starlette.types import Message

from gateway.http.captions import captions_response
from gateway.transcript import Transcript

CUE = re.compile(
    r"(\d+)-(\d+)\n(\d\d):(\d\d):(\d\d\.\d{3}) --> (\d\d):(\d\d):(\d\d\.\d{3})\n(.+)\n"
)


def cues(document: str) -> list[tuple[int, int, float, float, str]]:
    """Turn, piece, start, end in seconds and body of each cue; nothing else is in there."""
    assert document.startswith("WEBVTT\n")
    found = []
    for block in document.removeprefix("WEBVTT\n").split("\n\n"):
        if not block.strip():
            continue
        match = CUE.fullmatch(block.strip("\n") + "\n")
        assert match, block
        turn, piece, *times, body = match.groups()
        start, end = (
            float(hours) * 3600 + float(minutes) * 60 + float(seconds)
            for hours, minutes, seconds in (times[:3], times[3:])
        )
        found.append((int(turn), int(piece), start, end, body))
    return found


def plain(body: str) -> str:
    text = re.sub(r"<[^>]*>", "", body)
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def spoken(*turns: str) -> Harness:
    h = Harness()
    for text in turns:
        h.send("text.append", text=text)
        h.send("turn.end")
        h.speak_all(24_000)
    return h


def test_words_have_times_on_the_sample_clock() -> None:
    h = spoken("Hello, my friend. 你好。")
    first, last = [m for m in h.messages("caption") if m["final"]]
    assert [word["text"] for word in first["words"]] == ["Hello", "my", "friend"]
    assert [word["text"] for word in last["words"]] == ["你", "好"]
    for caption in first, last:
        assert caption["estimated"] is True
        assert caption["words"][0]["start_sample"] == caption["start_sample"]
        assert caption["words"][-1]["end_sample"] == caption["end_sample"]
        assert all("spoken" not in word for word in caption["words"])
    assert last["words"][0]["start"] == len("Hello, my friend. ")
    early = [m for m in h.messages("caption") if not m["final"]]
    assert early
    assert all("words" not in m and "estimated" not in m for m in early)


def test_spoken_words_come_beside_the_written_ones() -> None:
    h = spoken("So $a^2$ it is.")
    (caption,) = [m for m in h.messages("caption") if m["final"]]
    word = caption["words"][1]
    assert word["text"] == "$a^2$"
    assert word["spoken"] != word["text"]
    assert word["spoken"] in caption["spoken"]


def test_the_document_has_every_piece_on_one_clock() -> None:
    h = spoken("One & two < three. Four. ", "Five.")
    found = cues(h.session.transcript.webvtt())
    assert [(turn, piece) for turn, piece, *_ in found] == [(1, 0), (1, 1), (2, 0)]
    assert [plain(body) for *_, body in found] == ["One & two < three.", "Four.", "Five."]
    assert "One &amp; two &lt; three" in re.sub(r"<\d[^>]*>", "", found[0][4])
    assert re.findall(r"<(\d\d:\d\d:\d\d\.\d{3})>", found[0][4])
    for (*_, end, _), (_, _, start, *_) in pairwise(found):
        assert end <= start
    done = h.messages("turn.done")[0]
    assert found[2][2] == pytest.approx(done["samples"] / 24_000, abs=0.001)
    (own,) = cues(h.session.transcript.webvtt(turn=2))
    assert own[2] == 0.0


def test_line_breaks_do_not_break_cues() -> None:
    h = spoken("- One\n\n- Two\r\n\r\nThree.")
    assert all(body for *_, body in cues(h.session.transcript.webvtt()))


def test_what_is_not_spoken_is_said_in_the_other_text() -> None:
    h = spoken("See [the site](http://x.y/z).")
    ((*_, written),) = cues(h.session.transcript.webvtt())
    assert plain(written) == "See [the site](http://x.y/z)."
    ((*_, body),) = cues(h.session.transcript.webvtt(text="spoken"))
    assert body == "See the site."


def test_a_cancelled_turn_has_what_was_heard_of_it() -> None:
    h = Harness()
    h.send("text.append", text="One two three four five six seven eight. Nine ten. ")
    h.audio(0, 24_000, final=True)
    h.audio(1, 24_000, final=True)
    h.take()
    assert len(cues(h.session.transcript.webvtt())) == 2
    h.send("turn.cancel", played_ms=500)
    h.take()
    (cancelled,) = h.messages("turn.cancelled")
    ((*_, start, end, body),) = cues(h.session.transcript.webvtt())
    assert plain(body) == cancelled["spoken"].strip() != ""
    assert (start, end) == (0.0, 0.5)
    ((*_, said),) = cues(h.session.transcript.webvtt(text="spoken"))
    assert said.split() == cancelled["spoken"].split()
    h.send("text.append", text="Again.")
    h.send("turn.end")
    h.speak_all(24_000)
    again = cues(h.session.transcript.webvtt())[-1]
    assert again[2] == pytest.approx(cancelled["sent_samples"] / 24_000, abs=0.001)


def test_a_turn_done_and_then_cancelled_counts_once() -> None:
    h = Harness()
    h.send("text.append", text="One two three. ")
    h.send("turn.end")
    h.speak_all(48_000)
    h.send("turn.cancel", played_ms=0)
    h.send("text.append", text="Again.")
    h.send("turn.end")
    h.speak_all(24_000)
    (again,) = cues(h.session.transcript.webvtt())
    assert again[0] == 2
    done = h.messages("turn.done")[0]
    assert again[2] == pytest.approx(done["samples"] / 24_000, abs=0.001)


def test_a_piece_being_made_waits_for_its_end() -> None:
    h = Harness()
    h.send("text.append", text="One two three. Four. ")
    h.audio(0, 24_000)
    h.take()
    assert h.session.transcript.used
    assert cues(h.session.transcript.webvtt()) == []


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ({"turn": "x"}, 400, b"bad_field"),
        ({"turn": "²"}, 400, b"bad_field"),
        ({"text": "loud"}, 400, b"bad_field"),
        ({}, 200, b"WEBVTT"),
        ({"turn": "1", "text": "spoken"}, 200, b"WEBVTT"),
    ],
)
async def test_queries(query: dict[str, str], status: int, code: bytes) -> None:
    response = captions_response(Transcript(), query)
    assert response.status_code == status
    assert code in await body(response)


async def body(response: Response) -> bytes:
    """What the client of a response gets."""
    sent = []

    async def send(message: Message) -> None:
        sent.append(message.get("body", b""))

    async def receive() -> Message:
        return await asyncio.Future()

    await response({"type": "http", "asgi": {"spec_version": "2.4"}}, receive, send)
    return b"".join(sent)


async def test_others_work_while_a_long_document_is_made() -> None:
    h = Harness(start={"live": False})
    h.send("text.append", text="One two. " * 150)
    h.send("turn.end")
    h.speak_all(480)
    done = False
    turns = 0

    async def others() -> None:
        nonlocal turns
        while not done:
            turns += 1
            await asyncio.sleep(0)

    working = asyncio.create_task(others())
    document = await body(captions_response(h.session.transcript, {}))
    done = True
    await working
    pieces = len(cues(document.decode()))
    assert pieces > 50
    assert turns >= pieces // 20
    assert document.decode() == h.session.transcript.webvtt()


def test_no_such_session() -> None:
    response = captions_response(None, {})
    assert response.status_code == 404
    assert b"unknown_session" in bytes(response.body)
    assert json.loads(bytes(response.body))["hint"]
