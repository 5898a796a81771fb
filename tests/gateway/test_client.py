from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
from conftest import Run
from fake_engine import FakeSynthesizer, Script

from engine.api import SpeechError, SpeechRequest
from gateway import protocol
from gateway.client import Audio, Event, GatewayError, VoiceClient, read_message, stream_url

TEXT = "This is the first sentence. And here comes the second one."
LONG = Script(samples=24_000 * 60, delay=0.001)


async def all_of(events: AsyncIterator[Event]) -> list[Event]:
    return [event async for event in events]


def kinds(events: list[Event]) -> list[str]:
    """Types in order, runs of audio as one."""
    names: list[str] = []
    for event in events:
        name = type(event).__name__
        if name != "Audio" or names[-1:] != ["Audio"]:
            names.append(name)
    return names


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://h:1", "ws://h:1/v1/stream"),
        ("https://h", "wss://h/v1/stream"),
        ("https://h/", "wss://h/v1/stream"),
        ("ws://h:1/voice/v1/stream", "ws://h:1/voice/v1/stream"),
        ("wss://h/v1/stream?key=1", "wss://h/v1/stream?key=1"),
        ("h:8080", "ws://h:8080/v1/stream"),
    ],
)
def test_any_form_of_url_will_do(given: str, url: str) -> None:
    assert stream_url(given) == url


def test_messages_of_newer_servers_are_understood_as_far_as_known() -> None:
    assert read_message('{"type":"pong","id":"a","mood":1}') == protocol.Pong(id="a")
    assert read_message('{"type":"weather"}') is None


async def test_turns_one_after_the_other(run: Run) -> None:
    async with run() as running, running.client(format="pcm_s16le") as client:
        for turn in (1, 2):
            events = await all_of(client.speak(TEXT))
            assert kinds(events) == [
                "TurnStarted",
                "Caption",
                "Audio",
                "Caption",
                "Caption",
                "Audio",
                "Caption",
                "Audio",
                "TurnDone",
            ]
            done = events[-1]
            assert isinstance(done, protocol.TurnDone)
            assert done.turn == turn
            audio = [event for event in events if isinstance(event, Audio)]
            assert sum(len(event.payload) for event in audio) == done.samples * 2
            assert audio[0].at <= audio[-1].at


async def test_text_may_come_bit_by_bit(run: Run) -> None:
    async def words() -> AsyncIterator[str]:
        for word in TEXT.split(" "):
            yield word + " "
            await asyncio.sleep(0)

    async with run() as running, running.client() as client:
        done = (await all_of(client.speak(words())))[-1]
        assert isinstance(done, protocol.TurnDone)
        assert (done.pieces, done.characters) == (2, len(TEXT) + 1)


@pytest.mark.parametrize("text", ["", "   "])
async def test_empty_text_is_no_trouble(run: Run, text: str) -> None:
    async with run() as running, running.client() as client:
        events = await all_of(client.speak(text))
        assert not [event for event in events if isinstance(event, Audio)]
        assert kinds(await all_of(client.speak("Real text.")))[-1] == "TurnDone"


async def test_much_text_is_sent_no_faster_than_it_is_taken(run: Run) -> None:
    text = "A sentence of some length, to be said. " * 200
    engine = FakeSynthesizer(lambda _request, _number: Script(samples=240))
    async with run(engine, max_backlog_chars=1000) as running:
        async with running.client(live=False, captions=False) as client:
            done = (await all_of(client.speak(text)))[-1]
        assert isinstance(done, protocol.TurnDone)
        assert done.characters == len(text)
        assert done.failed == 0
        metrics = running.gateway.metrics.render().decode()
        assert "backlog_full" not in metrics


async def test_cancel_ends_the_turn_and_its_text(run: Run) -> None:
    async def endless() -> AsyncIterator[str]:
        while True:
            yield "On and on it goes. "
            await asyncio.sleep(0.001)

    engine = FakeSynthesizer(lambda _request, number: LONG if number == 0 else Script())
    async with run(engine) as running, running.client() as client:
        events = []
        async for event in client.speak(endless()):
            events.append(event)
            if isinstance(event, Audio) and not event.position:
                await client.cancel(played_ms=0)
        cancelled = events[-1]
        assert isinstance(cancelled, protocol.TurnCancelled)
        assert (cancelled.spoken, cancelled.heard_ms) == ("", 0)
        assert kinds(await all_of(client.speak("Next.")))[-1] == "TurnDone"
        assert running.gateway.connections
        assert engine.running == 0


async def test_leaving_early_cancels(run: Run) -> None:
    engine = FakeSynthesizer(lambda _request, number: LONG if number == 0 else Script())
    async with run(engine) as running, running.client() as client:
        async with aclosing(client.speak(TEXT)) as events:
            async for event in events:
                if isinstance(event, Audio):
                    break
        while engine.running:
            await asyncio.sleep(0.001)
        assert engine.closed == [0]
        second = await all_of(client.speak("Next."))
        assert kinds(second)[0] == "TurnStarted"
        assert kinds(second)[-1] == "TurnDone"


async def test_leaving_before_anything_was_said_is_no_trouble(run: Run) -> None:
    async def never() -> AsyncIterator[str]:
        await asyncio.Event().wait()
        yield ""

    async with run() as running, running.client() as client:
        speaking = asyncio.create_task(all_of(client.speak(never())))
        await asyncio.sleep(0.01)
        speaking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await speaking
        assert kinds(await all_of(client.speak("Next.")))[-1] == "TurnDone"


async def test_a_text_that_breaks_is_raised_after_the_cancel(run: Run) -> None:
    async def broken() -> AsyncIterator[str]:
        yield "A whole sentence. And a "
        raise LookupError("the model is gone")

    async with run() as running, running.client() as client:
        with pytest.raises(LookupError, match="the model is gone"):
            await all_of(client.speak(broken()))
        assert kinds(await all_of(client.speak("Next.")))[-1] == "TurnDone"


async def test_a_text_that_breaks_at_once_is_raised_too(run: Run) -> None:
    async def broken() -> AsyncIterator[str]:
        raise LookupError("the model is gone")
        yield ""

    async with run() as running, running.client() as client:
        with pytest.raises(LookupError, match="the model is gone"):
            await all_of(client.speak(broken()))


async def test_errors_of_pieces_are_events(run: Run) -> None:
    def script(_request: SpeechRequest, number: int) -> Script:
        error = SpeechError("unpronounceable", "Only signs.")
        return Script(fail_after=0, error=error) if number == 0 else Script()

    async with run(FakeSynthesizer(script)) as running, running.client() as client:
        events = await all_of(client.speak(TEXT))
        errors = [event for event in events if isinstance(event, protocol.Error)]
        assert [(error.code, error.start, error.end) for error in errors] == [
            ("unpronounceable", 0, 28)
        ]
        assert kinds(events)[-1] == "TurnDone"


async def test_a_warning_about_the_turn_is_an_event_and_refuses_nothing(run: Run) -> None:
    async with run() as running, running.client() as client:
        events = await all_of(client.speak(f"{TEXT} <think>And so"))
        warnings = [event for event in events if isinstance(event, protocol.Notice)]
        assert [(w.code, w.start) for w in warnings] == [("unclosed", len(TEXT) + 1)]
        assert kinds(events)[-1] == "TurnDone"


async def test_refused_text_is_raised(run: Run) -> None:
    async with run(max_turn_chars=100) as running, running.client() as client:
        with pytest.raises(GatewayError) as refused:
            await all_of(client.speak("A sentence. " * 20))
        assert refused.value.code == "turn_too_long"
        assert kinds(await all_of(client.speak("Next.")))[-1] == "TurnDone"


async def test_a_refused_start_is_raised(run: Run) -> None:
    async with run() as running:
        with pytest.raises(GatewayError) as refused:
            async with running.client(voice="zoe"):
                pass
        assert refused.value.code == "unknown_voice"
        await running.quiet()


async def test_playback_is_reported(run: Run) -> None:
    async with run() as running, running.client() as client:
        async for event in client.speak(TEXT):
            if isinstance(event, Audio):
                await client.report(event.turn, 0.0, paused=True)
        await client.cancel()
        cancelled = await client.receive()
        assert isinstance(cancelled, protocol.TurnCancelled)
        assert (cancelled.heard_ms, cancelled.completed) == (0, True)


async def test_a_server_that_is_not_there_is_unreachable() -> None:
    with pytest.raises(GatewayError) as refused:
        async with VoiceClient("http://127.0.0.1:9"):
            pass
    assert refused.value.code == "unreachable"


async def test_a_server_that_is_no_gateway_is_told_from_none() -> None:
    async def forbid(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
        writer.close()

    async with await asyncio.start_server(forbid, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(GatewayError, match="HTTP 403") as refused:
            async with VoiceClient(f"http://127.0.0.1:{port}"):
                pass
    assert refused.value.code == "not_a_gateway"


async def test_a_server_that_goes_away_is_told(run: Run) -> None:
    async with run() as running:
        async with running.client() as client:
            running.server.should_exit = True
            with pytest.raises(GatewayError) as closed:
                await client.receive()
            assert closed.value.code == "closed"
            with pytest.raises(GatewayError):
                await client.send("ping")
