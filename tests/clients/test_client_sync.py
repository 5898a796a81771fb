from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
from fake_engine import FakeSynthesizer, Script
from gateway_conftest import Run

from gateway.client import FLUSH, Audio, GatewayError
from gateway.client_sync import SyncVoiceClient
from gateway.protocol import Caption, TurnCancelled, TurnDone


async def test_text_in_audio_and_captions_out(run: Run) -> None:
    async with run() as running:

        def speak() -> list[object]:
            with SyncVoiceClient(running.url, voice="bao") as client:
                assert client.started.voice == "bao"
                return [*client.speak("Hello you."), *client.speak("And again.")]

        events = await asyncio.to_thread(speak)
        await running.quiet()
    assert any(isinstance(event, Audio) for event in events)
    assert [e.text for e in events if isinstance(e, Caption) and e.final] == [
        "Hello you.",
        "And again.",
    ]
    assert sum(isinstance(event, TurnDone) for event in events) == 2


async def test_text_is_read_as_it_comes(run: Run) -> None:
    async with run() as running:
        heard = threading.Event()

        def text() -> Iterator[str | object]:
            yield "First. "
            yield FLUSH
            assert heard.wait(10)
            yield "Second."

        def speak() -> list[str]:
            spoken = []
            with SyncVoiceClient(running.url) as client:
                for event in client.speak(text()):  # type: ignore[arg-type]
                    if isinstance(event, Audio):
                        heard.set()
                    elif isinstance(event, Caption) and event.final:
                        spoken.append(event.text)
            return spoken

        assert await asyncio.to_thread(speak) == ["First. ", "Second."]


async def test_cancel_comes_from_another_thread(run: Run) -> None:
    engine = FakeSynthesizer(lambda *_: Script(samples=2_400_000, delay=0.05))
    async with run(engine) as running:

        def speak() -> object:
            with SyncVoiceClient(running.url) as client:
                for event in client.speak("Hello you."):
                    if isinstance(event, Audio) and event.position == 0:
                        threading.Thread(target=client.cancel, args=(0,)).start()
                return event

        assert isinstance(await asyncio.to_thread(speak), TurnCancelled)
        await running.quiet()
        assert engine.closed == [0]


async def test_a_second_cancel_does_not_touch_the_next_turn(run: Run) -> None:
    async with run() as running:

        def speak() -> tuple[object, object]:
            with SyncVoiceClient(running.url) as client:
                first = list(client.speak("Hello you."))[-1]
                # Long heard: both are answered that there is no such turn.
                client.cancel(played_ms=60_000)
                client.cancel(played_ms=60_000)
                return first, list(client.speak("And again."))[-1]

        first, second = await asyncio.to_thread(speak)
    assert isinstance(first, TurnDone)
    assert isinstance(second, TurnDone)
    assert second.characters == len("And again.")


async def test_leaving_the_loop_stops_the_speech(run: Run) -> None:
    engine = FakeSynthesizer(lambda *_: Script(samples=2_400_000, delay=0.05))
    async with run(engine) as running:

        def speak() -> None:
            with SyncVoiceClient(running.url) as client:
                events = client.speak("Hello you.")
                assert next(events)
                events.close()  # type: ignore[attr-defined]
                assert not engine.running

        await asyncio.to_thread(speak)


async def test_what_the_text_raises_is_raised(run: Run) -> None:
    async with run() as running:

        def text() -> Iterator[str]:
            yield "Hello. "
            raise ValueError("the writer failed")

        def speak() -> None:
            with SyncVoiceClient(running.url) as client:
                list(client.speak(text()))

        with pytest.raises(ValueError, match="the writer failed"):
            await asyncio.to_thread(speak)


@pytest.mark.parametrize("text", [iter(["bad \udcff"]), "bad \udcff"])
async def test_text_that_breaks_before_it_began_is_raised(run: Run, text: object) -> None:
    async with run() as running:

        def speak() -> list[object]:
            with SyncVoiceClient(running.url) as client:
                with pytest.raises(TypeError, match="UTF-8"):
                    list(client.speak(text))  # type: ignore[arg-type]
                return list(client.speak("And again."))

        async with asyncio.timeout(20):
            events = await asyncio.to_thread(speak)
    assert isinstance(events[-1], TurnDone)


@pytest.mark.parametrize("url", ["ftp://x", "http://127.0.0.1:99999", "http://[::1", ""])
def test_what_is_no_address_is_told(url: str) -> None:
    with pytest.raises(GatewayError) as refused, SyncVoiceClient(url):
        pass
    assert refused.value.code == "bad_url"


async def test_refusals_are_raised(run: Run, unused_tcp_port: int) -> None:
    def enter(url: str, **options: object) -> str:
        with pytest.raises(GatewayError) as refused, SyncVoiceClient(url, **options):
            pass
        return refused.value.code

    nobody = f"http://127.0.0.1:{unused_tcp_port}"
    assert await asyncio.to_thread(enter, nobody) == "unreachable"
    async with run() as running:
        assert await asyncio.to_thread(enter, running.url, voice="nobody") == "unknown_voice"
