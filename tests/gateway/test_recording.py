"""Sessions recorded on the wire and run again, message for message."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Run, Running
from fake_engine import FakeSynthesizer, Script

from engine.api import SpeechError
from gateway.cli import main
from gateway.client import Audio
from gateway.commands.replay import offer_of
from gateway.protocol import TurnCancelled, TurnDone
from gateway.replay import Outcome, RecordingError, recordings, replay

TEXT = "Hello there, my friend. How are you today? 你好，世界。I am well, thank you very much."


def engine() -> FakeSynthesizer:
    """Uneven chunks with silence around them; one piece fails once, one for good."""

    def script(request: Any, number: int) -> Script:
        again = SpeechError("engine_restarting", "Just now.", retryable=True)
        return Script(
            samples=9_000 + 700 * number,
            chunk=1_300,
            delay=0.001,
            silence=(2_000, 3_000),
            fail_after={1: 0, 3: 3}.get(number),
            error=again if number == 1 else SpeechError("runaway", "No end was found."),
        )

    return FakeSynthesizer(script)


async def eventful(running: Running, **options: Any) -> None:
    """Two turns, errors, an interruption, and what the client should not have sent."""
    async with running.client(speed=1.1, frame_ms=40, **options) as client:
        async for _ in client.speak(TEXT):
            pass
        await client.send("text.append", text=7)
        await client.send("session.update", voice="nobody")
        await client.send("session.update", voice="bao")
        answers = [await client.receive() for _ in range(3)]
        assert [type(answer).__name__ for answer in answers] == ["Error", "Error", "SessionUpdated"]
        heard = 0
        async for event in client.speak(TEXT):
            heard += isinstance(event, Audio)
            if heard == 10:
                await client.cancel(played_ms=150.0)
            if isinstance(event, TurnCancelled | TurnDone):
                break
        await client.send("ping", id="x")
        await client.send("session.end")
        with pytest.raises(Exception, match="session ended"):
            while True:
                await client.receive()


async def record(run: Run, folder: Path, *, audio: bool, **options: Any) -> Path:
    async with run(engine(), record_dir=str(folder), record_audio=int(audio)) as running:
        await asyncio.wait_for(eventful(running, **options), 60)
        await running.quiet()
    (path,) = recordings(folder)
    return path


def events(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def rewritten(path: Path, lines: list[dict[str, Any]]) -> Outcome:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return replay(path, offer_of)


@pytest.mark.parametrize("audio", [False, True])
@pytest.mark.parametrize("format", ["opus", "pcm_s16le"])
async def test_a_replay_gives_the_same_messages(
    run: Run, tmp_path: Path, format: str, audio: bool
) -> None:
    path = await record(run, tmp_path, audio=audio, format=format)
    outcome = replay(path, offer_of)
    assert outcome.difference is None
    kinds = [json.loads(event["text"])["type"] for event in events(path) if "text" in event][1:]
    assert {"session.started", "turn.done", "turn.cancelled", "error", "caption"} <= set(kinds)
    assert outcome.messages >= 20
    assert outcome.packets >= 20
    assert path.with_suffix(".f32").exists() == audio


async def test_a_session_that_was_resumed_replays_too(run: Run, tmp_path: Path) -> None:
    slow = FakeSynthesizer(
        lambda _request, _number: Script(samples=24_000, chunk=1_200, delay=0.01)
    )
    async with run(slow, record_dir=str(tmp_path)) as running:
        async with running.client(reconnect=True) as client:
            packets = 0
            async for event in client.speak(TEXT):
                packets += isinstance(event, Audio)
                if packets in (5, 30):
                    client.link._socket.transport.abort()
            assert client.link.resumes == 2
        await running.quiet()
    # Each connection began a session of its own, which gave way to the first.
    outcomes = {path: replay(path, offer_of) for path in recordings(tmp_path)}
    assert len(outcomes) == 3
    assert [outcome.difference for outcome in outcomes.values()] == [None] * 3
    [whole] = [path for path in outcomes if "session.started" in path.read_text()]
    kinds = [event.get("event") for event in events(whole)]
    assert kinds.count("resume") == 2
    # What was sent again was not made again, and the replay sent it again too.
    assert outcomes[whole].packets >= packets


async def test_text_is_in_it_and_sound_only_where_asked(run: Run, tmp_path: Path) -> None:
    path = await record(run, tmp_path, audio=False)
    packets = [event for event in events(path) if "audio" in event and event["event"] == "take"]
    assert packets
    assert all(len(event["audio"]) == 32 for event in packets)
    assert "Hello there" in path.read_text()


async def test_a_difference_is_shown_with_its_line(run: Run, tmp_path: Path) -> None:
    path = await record(run, tmp_path, audio=False)
    lines = events(path)
    at = next(i for i, line in enumerate(lines) if '"turn.done"' in str(line.get("text")))
    lines[at]["text"] = lines[at]["text"].replace('"failed":', '"failed":9')
    outcome = rewritten(path, lines)
    assert outcome.difference is not None
    assert outcome.difference.line == at + 1
    assert '"failed":9' in outcome.difference.recorded["text"]
    assert '"failed":9' not in outcome.difference.replayed["text"]


async def test_the_command_compares_a_folder(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = await record(run, tmp_path, audio=True)
    assert await asyncio.to_thread(main, ["replay", str(tmp_path)]) == 0
    assert "the same" in capsys.readouterr().out
    lines = events(path)
    lines[-3]["now"] += 1000.0
    lines = [line for line in lines if "close" not in line]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines[:-2]) + '{"half')
    assert await asyncio.to_thread(main, ["replay", str(path)]) == 0
    lines[1]["text"] = json.dumps({"type": "session.start", "voice": "ann", "speed": 1.2})
    rewritten(path, lines)
    assert await asyncio.to_thread(main, ["replay", str(path)]) == 1
    captured = capsys.readouterr()
    assert "differs at line" in captured.out
    assert "recorded:" in captured.err


async def test_a_lost_sound_file_is_named(run: Run, tmp_path: Path) -> None:
    path = await record(run, tmp_path, audio=True)
    path.with_suffix(".f32").unlink()
    with pytest.raises(RecordingError, match=r"\.f32 is missing"):
        replay(path, offer_of)


@pytest.mark.parametrize(
    ("content", "words"),
    [("", "is empty"), ('{"recording":99}\n', "version 1"), ("no\n", "line 1: not JSON")],
)
def test_what_is_no_recording_is_refused(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(content)
    with pytest.raises(RecordingError, match=words):
        replay(path, offer_of)
    assert main(["replay", str(tmp_path)]) == 1
    with pytest.raises(RecordingError, match="No recording"):
        recordings(tmp_path / "nowhere")


async def test_a_disk_that_takes_nothing_ends_the_recording_and_not_the_session(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "recordings"
    async with run(engine(), record_dir=str(folder)) as running:
        folder.rmdir()
        async with running.client() as client:
            events = [event async for event in client.speak("One sentence.")]
            assert isinstance(events[-1], TurnDone)
    assert "is recorded no further" in caplog.text
