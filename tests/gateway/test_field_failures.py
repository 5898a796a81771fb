"""How voice gateways are known to fail, one test a failure, through the whole gateway.

What a single module answers for is also tested beside it; here the failure is looked for where a
listener would meet it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import numpy as np
import opuslib
import pytest
from conftest import Run, Running
from cutting_proxy import CuttingProxy
from fake_engine import FakeSynthesizer, Script, tone
from session_harness import Harness
from test_connection import hear, open_session, say

from engine.api import SAMPLE_RATE, Pcm, SpeechError, SpeechRequest
from gateway.client import Audio, Event, VoiceClient
from gateway.protocol import Caption, Error, TurnCancelled, TurnDone
from gateway.settings import Settings
from gateway.turn import STEP_SAMPLES

TEXT = "This is the first sentence. And here comes the second one. A third one ends it."


async def speak(client: VoiceClient, text: str | AsyncIterator[str] = TEXT) -> list[Event]:
    return [event async for event in client.speak(text)]


def decoded(events: list[Event]) -> Pcm:
    """What a listener hears of a turn of Opus."""
    decoder = opuslib.Decoder(SAMPLE_RATE, 1)
    audio = [event for event in events if isinstance(event, Audio)]
    data = b"".join(decoder.decode(packet.payload, packet.samples) for packet in audio)
    (done,) = [event for event in events if isinstance(event, TurnDone)]
    return np.frombuffer(data, "<i2")[156 : 156 + done.samples].astype(np.float32) / 32768


def silences(audio: Pcm) -> list[int]:
    """Lengths of the runs that nobody hears, in samples."""
    quiet = np.concatenate(([False], np.abs(audio) < 0.003, [False]))
    edges = np.flatnonzero(np.diff(quiet.astype(np.int8)))
    runs: list[int] = (edges[1::2] - edges[::2]).tolist()
    return [run for run in runs if run > SAMPLE_RATE // 50]


def finals(events: list[Event]) -> list[Caption]:
    return [event for event in events if isinstance(event, Caption) and event.final]


def spoken_pieces(text: str, step: int) -> list[str]:
    """What the engine is asked for when the text comes in fragments of so many characters."""
    h = Harness(start={"live": False})
    for at in range(0, len(text), step):
        h.send("text.append", text=text[at : at + step])
    h.send("turn.end")
    h.speak_all()
    assert len(h.messages("turn.done")) == 1
    assert not h.messages("error")
    captions = "".join(m["text"] for m in h.messages("caption") if m["final"])
    assert captions == (text if h.requests else "")
    return [request.text for request in h.requests]


@pytest.mark.parametrize("step", [1, 3, 1000])
class TestCutting:
    @pytest.mark.parametrize(
        "sentence",
        [
            "It costs $3.5 at 98.6 degrees.",
            "Es sind 3,14 oder 1,000 davon.",
            "共13.81万亿元。",
            "Dr. Smith comes at 9 a.m. on Monday.",
            "Take fruit, e.g. apples.",
            'He said "Dr. Smith" to her.',
            "See example.com/a?b=1 or mail me@example.org now.",
            "Open main.py in the editor.",
            "Wait... what is that?",
            "等等……好吧。",
        ],
    )
    def test_nothing_is_cut_inside(self, sentence: str, step: int) -> None:
        assert spoken_pieces(sentence, step) == [sentence]

    def test_mandarin_is_cut_at_its_own_marks(self, step: int) -> None:
        assert spoken_pieces("今天很好。明天更好！后天呢？", step) == [
            "今天很好。",
            "明天更好！",
            "后天呢？",
        ]

    def test_quotes_and_brackets_stay_with_their_sentence(self, step: int) -> None:
        assert spoken_pieces("“今天很好。”他说。", step)[0].startswith("“今天很好。”")
        assert spoken_pieces('"It is late." (It was not.) So he left.', step) == [
            '"It is late."',
            "(It was not.)",
            "So he left.",
        ]

    @pytest.mark.parametrize("text", ["……", "...", "?!", "— ", "\n\n", "。。。", "🙂"])
    def test_marks_alone_are_no_request_and_do_not_hang(self, text: str, step: int) -> None:
        assert spoken_pieces(text, step) == []

    def test_a_long_sentence_without_marks_loses_no_word(self, step: int) -> None:
        words = [f"word{index}" for index in range(300)]
        pieces = spoken_pieces(" ".join(words), step)
        assert " ".join(pieces).split() == words
        assert max(map(len, pieces)) <= 300

    def test_the_last_sentence_does_not_wait_for_the_next_turn(self, step: int) -> None:
        assert spoken_pieces("One sentence. And no full stop", step)[-1] == "And no full stop"

    def test_what_is_not_speech_is_not_read_aloud(self, step: int) -> None:
        text = "<think>Hm.</think>\n# Title\n\n**Bold** 🎉 [here](https://example.com/x?y=1) it is."
        said = " ".join(spoken_pieces(text, step))
        assert said.split() == ["Title", "Bold", "here", "it", "is."]


class TestAudio:
    async def test_no_second_of_silence_between_sentences(self, run: Run) -> None:
        script = Script(samples=12_000, silence=(12_000, 9_600))
        async with run(FakeSynthesizer(lambda *_: script)) as running:
            async with running.client() as client:
                audio = decoded(await speak(client))
        found = silences(audio)
        assert len(found) >= 2
        assert max(found) <= SAMPLE_RATE // 2

    async def test_neither_the_first_nor_the_last_word_is_lost(self, run: Run) -> None:
        async with run(FakeSynthesizer(lambda *_: Script(samples=24_000))) as running:
            async with running.client() as client:
                events = await speak(client, "Word.")
        audio = decoded(events)
        assert not [run for run in silences(audio[:24_000]) if run > SAMPLE_RATE // 100]
        loudness = float(np.std(tone(24_000, 200.0)))
        for part in audio[240:2400], audio[21_600:23_760]:
            assert float(np.std(part)) == pytest.approx(loudness, rel=0.2)

    async def test_the_size_of_the_engines_chunks_is_not_heard(self, run: Run) -> None:
        heard = []
        for chunk in (113, 512, 100_000):
            engine = FakeSynthesizer(lambda *_, chunk=chunk: Script(samples=9600, chunk=chunk))
            async with run(engine) as running, running.client() as client:
                events = await speak(client)
                heard.append([event.payload for event in events if isinstance(event, Audio)])
        assert heard[0] == heard[1] == heard[2]

    async def test_the_voice_goes_on_from_piece_to_piece(self, run: Run) -> None:
        async with run() as running, running.client(voice="ann", seed=7) as client:
            await speak(client)
            asked = running.engine.requests
            assert {(request.voice, request.seed) for request in asked} == {("ann", 7)}
            assert [request.context for request in asked] == [
                None,
                ("context", 0),
                ("context", 1),
            ]


class TestSessions:
    async def test_nothing_stale_is_heard_after_an_interruption(self, run: Run) -> None:
        engine = FakeSynthesizer(lambda *_: Script(samples=120_000, delay=0.001))
        async with run(engine) as running, open_session(running) as peer:
            for number in range(1, 6):
                await say(peer, "turn.start", interrupt=True)
                await say(peer, "text.append", text=TEXT)
                while not isinstance(raw := await peer.recv(), bytes) or raw[4] != number:
                    pass
                cancelled = False
                await say(peer, "turn.cancel")
                while not cancelled:
                    cancelled = (await hear(peer))["type"] == "turn.cancelled"
                await say(peer, "ping", id=str(number))
                rest = await peer.recv()
                assert isinstance(rest, str), "audio after turn.cancelled"
        async with asyncio.timeout(60):
            await running.quiet()

    async def test_turns_leave_nothing_behind_in_a_long_session(self) -> None:
        h = Harness()
        for _ in range(300):
            h.send("text.append", text=TEXT)
            h.send("turn.end")
            h.speak_all()
            h.wait(2.0)
        assert len(h.session._turns._recent) <= 8
        assert not h.session._turns.queue
        assert not h.engine

    async def test_a_flush_without_a_turn_opens_none(self, run: Run) -> None:
        async with run() as running, open_session(running) as peer:
            await say(peer, "text.flush", id="1")
            assert (await hear(peer))["type"] == "flush.done"
            await say(peer, "text.append", text="Hello.")
            assert (await hear(peer))["turn"] == 1

    async def test_an_engine_that_dies_gives_an_end_to_every_turn(self, run: Run) -> None:
        stopped = SpeechError("engine_stopped", "The engine has stopped.")
        engine = FakeSynthesizer(lambda *_: Script(fail_after=1, error=stopped))
        async with run(engine) as running, running.client() as client:
            async with asyncio.timeout(60):
                events = await speak(client)
            done = events[-1]
            assert isinstance(done, TurnDone)
            assert done.failed == done.pieces == 3
            assert {e.code for e in events if isinstance(e, Error)} == {"engine_stopped"}

    async def test_a_slow_writer_is_waited_for(self, run: Run) -> None:
        async def tokens() -> AsyncIterator[str]:
            for token in TEXT.split(" "):
                yield token + " "
                await asyncio.sleep(0.1)

        async with (
            run(ping_interval_seconds=0.05, ping_timeout_seconds=0.1) as running,
            running.client() as client,
        ):
            done = (await speak(client, tokens()))[-1]
            assert isinstance(done, TurnDone)
            assert (done.failed, done.characters) == (0, len(TEXT) + 1)

    async def test_dead_sockets_do_not_hold_the_slots_of_the_living(self, run: Run) -> None:
        engine = FakeSynthesizer(lambda *_: Script(hold=asyncio.Event()))
        async with run(engine, max_sessions=4) as running:
            for _ in range(4):
                async with open_session(running) as peer:
                    await say(peer, "text.append", text=TEXT)
                    await hear(peer)
                    peer.transport.abort()
            await running.quiet()
            assert engine.running == 0
            async with running.client():
                pass

    async def test_a_storm_of_reconnects_loses_nobody(self, run: Run) -> None:
        engine = FakeSynthesizer(lambda *_: Script(samples=9600, delay=0.005))

        async def one(running: Running) -> None:
            proxy = CuttingProxy(running.port, iter([3000, 2500, 3000]))
            async with proxy.run() as url, VoiceClient(url, reconnect=True) as client:
                done = (await speak(client))[-1]
                assert isinstance(done, TurnDone)
                assert (done.failed, done.pieces) == (0, 3)
                assert client.link.resumes >= 1

        async with run(engine, max_sessions=24) as running, asyncio.timeout(120):
            # As many as there is room for: who comes back must not be refused for it.
            await asyncio.gather(*(one(running) for _ in range(24)))
            await running.quiet()
            assert engine.running == 0

    def test_no_step_encodes_more_than_a_little(self) -> None:
        h = Harness(Settings(audio_buffer_seconds=1e9))
        h.send("text.append", text="Hello there. ")
        h.audio(0, 60 * SAMPLE_RATE, final=True)
        turn = h.session._turns.queue[0]
        most = 0
        while turn._cursor == 0:
            h.take(1)
            most = max(most, len(turn._ready))
        assert 1 < most <= 2 * STEP_SAMPLES // 480

    def test_a_flood_of_text_stays_bounded(self) -> None:
        h = Harness(Settings(max_backlog_chars=1000))
        for _ in range(500):
            h.send("text.append", text="Some words that nobody waits for. " * 3)
            h.take()
        held = h.session._turns.queue[0].characters
        assert held <= 1000
        assert {m["code"] for m in h.messages("error")} == {"backlog_full"}
        assert len(h.engine) <= h.settings.pieces_ahead


class TestConcurrency:
    async def test_eight_streams_hear_their_own_pieces_in_order(self, run: Run) -> None:
        def script(_request: SpeechRequest, number: int) -> Script:
            return Script(samples=9600, chunk=960, delay=0.001 * (number % 3))

        engine = FakeSynthesizer(script)

        async def one(running: Running, number: int) -> None:
            text = f"I am listener {number}. Here is my second line. And my third."
            async with running.client() as client:
                events = await speak(client, text)
            audio = decoded(events)
            asked = {request.text: index for index, request in enumerate(engine.requests)}
            captions = finals(events)
            assert "".join(caption.text for caption in captions) == text
            assert captions[0].spoken == f"I am listener {number}."
            for caption in captions[:1]:
                part = audio[caption.start_sample : caption.end_sample]
                pitch = np.argmax(np.abs(np.fft.rfft(part, 24_000)))
                assert abs(int(pitch) - (200 + 10 * asked[caption.spoken])) <= 3
            packets = [event for event in events if isinstance(event, Audio)]
            assert [packet.sequence for packet in packets] == list(range(len(packets)))
            assert [packet.position for packet in packets] == [480 * i for i in range(len(packets))]

        async with run(engine) as running, asyncio.timeout(60):
            await asyncio.gather(*(one(running, number) for number in range(8)))

    async def test_what_is_ready_sooner_does_not_overtake(self, run: Run) -> None:
        def script(_request: SpeechRequest, number: int) -> Script:
            return Script(samples=4800, chunk=480, delay=0.02 if number == 0 else 0.0)

        async with run(FakeSynthesizer(script), overlap_lead_seconds=1e6) as running:
            async with running.client() as client:
                events = await speak(client)
        assert [caption.piece for caption in finals(events)] == [0, 1, 2]
        audio = decoded(events)
        pitches = []
        for caption in finals(events):
            part = audio[caption.start_sample : caption.end_sample]
            pitches.append(int(np.argmax(np.abs(np.fft.rfft(part, 24_000)))))
        assert [round(pitch, -1) for pitch in pitches] == [200, 210, 220]


class TestCaptions:
    async def test_a_transcript_is_not_longer_than_what_was_heard(self, run: Run) -> None:
        engine = FakeSynthesizer(lambda *_: Script(samples=48_000, delay=0.001))
        async with run(engine) as running, running.client() as client:
            events: list[Event] = []
            async for event in client.speak(TEXT):
                events.append(event)
                if isinstance(event, Audio) and event.sequence == 45:
                    await client.cancel(played_ms=700)
            last = events[-1]
            assert isinstance(last, TurnCancelled)
            assert last.heard_ms == 700
            assert last.spoken
            assert TEXT.startswith(last.spoken)
            assert len(last.spoken) < len("This is the first sentence.")
            document = running.gateway.sessions.transcript(client.started.session)
            assert document is not None
            assert "--> 00:00:00.700" in document.webvtt()
            assert "second" not in document.webvtt()

    @pytest.mark.parametrize(
        "text",
        ["Hello,  world. \n\nA new one. ", "今天很好。明天 OK 吗？", "He said “no”. 你好，Bob!"],
    )
    async def test_captions_join_to_the_text_with_its_own_spaces(self, run: Run, text: str) -> None:
        async with run() as running, running.client() as client:
            events = await speak(client, text)
        assert "".join(caption.text for caption in finals(events)) == text
        for caption in finals(events):
            for word in caption.words or []:
                assert text[word["start"] : word["end"]] == word["text"]

    async def test_packets_go_out_one_by_one_and_at_once(self, run: Run) -> None:
        hold = asyncio.Event()

        def script(_request: SpeechRequest, number: int) -> Script:
            return Script(samples=12_000, hold=hold if number else None)

        async with run(FakeSynthesizer(script)) as running, running.client() as client:
            speaking = client.speak(TEXT)
            first = [await anext(speaking) for _ in range(10)]
            # The first piece is heard while the second has not begun.
            assert sum(isinstance(event, Audio) for event in first) >= 5
            hold.set()
            with contextlib.suppress(StopAsyncIteration):
                while True:
                    await anext(speaking)
