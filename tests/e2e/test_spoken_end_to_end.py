"""The product as a person meets it: the command, the real engine, the embedded voice, files that
are listened to."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import wave
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import httpx
import jiwer
import numpy as np
import numpy.typing as npt
import opuslib
import psutil
import pytest
import soundfile
from websockets.asyncio.client import connect

from engine.align.words import spoken_words
from engine.api import Language
from engine.frontend.phonemes import Alphabet
from engine.frontend.text import TextFrontend
from gateway.client import Audio, VoiceClient, stream_url
from gateway.containers import read_raw_opus
from gateway.protocol import Caption, TurnCancelled, TurnDone
from training.judges import EnglishListener
from training.recogniser import ALPHABET, PhonemeRecogniser, edit_distance, heard_symbols, segments

pytestmark = pytest.mark.engine

Pcm = npt.NDArray[np.float32]
VOXGATE = [sys.executable, "-m", "gateway.cli"]
ENGLISH = (
    "The quick brown fox jumps over the lazy dog.",
    "Please send the report to the office before noon.",
    "We walked along the river and talked about the weather.",
)
MANDARIN = "今天天气很好，我们一起去公园散步。"
OTHER_MANDARIN = "请把这份文件交给办公室的老师。"


@dataclass(frozen=True)
class Gateway:
    """`voxgate serve` in a process of its own."""

    process: subprocess.Popen[str]
    http: str

    def say(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*VOXGATE, "say", "--url", self.http, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    process = subprocess.Popen(
        [*VOXGATE, "serve", "--port", str(port), "--eager"],
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        # Who runs other tests beside these may be too slow for three listeners.
        env={**os.environ, "VOXGATE_CAPACITY_SHARE": "0"},
    )
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if "Ctrl-C stops it" in line:
            break
    else:
        pytest.fail("".join(lines))
    yield Gateway(process, f"http://127.0.0.1:{port}")
    if process.poll() is None:
        process.terminate()
        process.wait()


# -- listening ------------------------------------------------------------------------------------


def read(path: Path) -> Pcm:
    """24 kHz audio of a file in any of the three formats."""
    if path.suffix == ".opus":
        decoder = opuslib.Decoder(24_000, 1)
        with path.open("rb") as file:
            pcm = b"".join(decoder.decode(packet, 480) for packet in read_raw_opus(file))
        return np.frombuffer(pcm, dtype="<i2").astype(np.float32) / 32768
    audio, rate = soundfile.read(path, dtype="float32")
    found: Pcm = audio[:: rate // 24_000]
    return found


@cache
def listener() -> EnglishListener:
    return EnglishListener()


@cache
def recogniser() -> PhonemeRecogniser:
    return PhonemeRecogniser.load()


@cache
def frontend() -> TextFrontend:
    return TextFrontend(Alphabet.load(ALPHABET))


def words(text: str) -> str:
    return re.sub(r"[^a-z ]", "", text.lower())


def segment_error(text: str, language: Language, pcm: Pcm) -> float:
    """Share of the text's segments that the recogniser did not hear."""
    said = segments(heard_symbols(frontend().read(text, language).phonemes))
    return edit_distance(said, segments(recogniser().heard(pcm))) / len(said)


# -- speech ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sentence", "name"), zip(ENGLISH, ("out.ogg", "out.wav", "out.opus"), strict=True)
)
def test_english_is_understood(gateway: Gateway, tmp_path: Path, sentence: str, name: str) -> None:
    out = tmp_path / name
    told = gateway.say(sentence, "-o", str(out), "--seed", "1").stderr
    assert re.search(r"first packet \d+ ms, first audible \d+ ms", told)
    assert jiwer.wer(words(sentence), words(listener().heard(read(out)))) <= 0.25


@pytest.mark.parametrize("voice", ["default", "jm_kumo"])
def test_mandarin_is_understood(gateway: Gateway, tmp_path: Path, voice: str) -> None:
    out = tmp_path / "out.wav"
    gateway.say(MANDARIN, "-o", str(out), "--seed", "1", "--voice", voice)
    pcm = read(out)
    assert segment_error(MANDARIN, "zh", pcm) < 0.4
    assert segment_error(OTHER_MANDARIN, "zh", pcm) > 0.6


@pytest.mark.parametrize(
    ("word", "other", "language"),
    [("Tomorrow.", "Picture.", "en"), ("明天。", "老师。", "zh")],
)
def test_a_single_word_is_a_word(
    gateway: Gateway, tmp_path: Path, word: str, other: str, language: Language
) -> None:
    out = tmp_path / "out.wav"
    gateway.say(word, "-o", str(out), "--seed", "1")
    pcm = read(out)
    assert pcm.size < 1.5 * 24_000
    assert segment_error(word, language, pcm) <= 0.34
    assert segment_error(other, language, pcm) > 0.5


def test_text_streams_in_and_speech_follows(gateway: Gateway, tmp_path: Path) -> None:
    out = tmp_path / "out.ogg"
    gateway.say("-", "-o", str(out), "--seed", "1", stdin=" ".join(ENGLISH) + MANDARIN)
    said = words(" ".join(ENGLISH))
    # What the English listener makes of the Mandarin at the end is left out.
    heard = " ".join(words(listener().heard(read(out))).split()[: len(said.split())])
    assert jiwer.wer(said, heard) <= 0.25


def test_the_same_seed_speaks_the_same_way(gateway: Gateway, tmp_path: Path) -> None:
    takes = []
    for take, seed in enumerate(("5", "5", "6")):
        out = tmp_path / f"{take}.wav"
        gateway.say(ENGLISH[0], "-o", str(out), "--seed", seed)
        with wave.open(str(out)) as file:
            takes.append(np.frombuffer(file.readframes(file.getnframes()), dtype="<i2"))
    first, again, other = takes
    assert first.size == again.size
    assert np.abs(first.astype(int) - again).max() <= 8
    assert other.size != first.size or np.abs(other.astype(int) - first).max() > 1000


async def test_listeners_at_once_hear_their_own_text(gateway: Gateway) -> None:
    async def listen(sentence: str) -> Pcm:
        async with VoiceClient(gateway.http, format="pcm_s16le", seed=1, captions=False) as client:
            packets = [e.payload async for e in client.speak(sentence) if isinstance(e, Audio)]
        return np.frombuffer(b"".join(packets), dtype="<i2").astype(np.float32) / 32768

    spoken = await asyncio.gather(*map(listen, ENGLISH))
    for sentence, pcm in zip(ENGLISH, spoken, strict=True):
        assert jiwer.wer(words(sentence), words(listener().heard(pcm))) <= 0.25


@pytest.mark.parametrize("sentence", [ENGLISH[0], MANDARIN])
async def test_captions_tell_when_each_word_is_heard(gateway: Gateway, sentence: str) -> None:
    packets, told = [], []
    async with VoiceClient(gateway.http, format="pcm_s16le", seed=1) as client:
        async for event in client.speak(sentence):
            if isinstance(event, Audio):
                packets.append(event.payload)
            elif isinstance(event, Caption) and event.final:
                assert event.estimated is None
                told += event.words or []
    pcm = np.frombuffer(b"".join(packets), dtype="<i2").astype(np.float32) / 32768
    reading = frontend().read(sentence)
    spoken = spoken_words(
        sentence, reading.phonemes, lambda word: frontend().sounds(word, reading.language)
    )
    assert [(word["start"], word["end"]) for word in told] == [w[:2] for w in spoken]
    edges = recogniser().edges(pcm, reading.phonemes)
    off = [
        told_sample - int(edges[symbol])
        for word, known in zip(told, spoken, strict=True)
        for told_sample, symbol in (
            (word["start_sample"], known.first),
            (word["end_sample"], known.last),
        )
    ]
    assert np.median(np.abs(off)) <= 0.040 * 24_000


# -- everything else a client may do --------------------------------------------------------------


async def test_health_and_metrics(gateway: Gateway) -> None:
    async with httpx.AsyncClient(base_url=gateway.http, timeout=30) as http:
        assert (await http.get("/health")).json()["engine"] == "ready"
        ready = await http.get("/health/ready")
        assert (ready.status_code, ready.json()["ready"]) == (200, True)
        metrics = (await http.get("/metrics")).text
        page = await http.get("/")
    assert 'voxgate_engine_state{state="ready"} 1.0' in metrics
    queries, hits = (
        float(re.search(rf"^voxgate_engine_prefix_cache_{what}_total (\S+)$", metrics, re.M)[1])  # type: ignore[index]
        for what in ("queries", "hits")
    )
    # Every piece after a voice's first finds the speaker prompt in the cache.
    assert hits / queries > 0.5
    assert page.status_code == 200
    assert "text/html" in page.headers["content-type"]


async def test_bad_input_is_answered_and_the_session_lives(gateway: Gateway) -> None:
    async with connect(stream_url(gateway.http), compression=None) as peer:

        async def code(message: str | bytes) -> str:
            await peer.send(message)
            return str(json.loads(await peer.recv())["code"])

        assert await code('{"type": "text.append", "text": "early"}') == "not_started"
        assert await code('{"type": "session.start", "voice": "nobody"}') == "unknown_voice"
        await peer.send('{"type": "session.start", "captions": false, "mood": "gay"}')
        started = json.loads(await peer.recv())
        assert (started["type"], started["unknown"]) == ("session.started", ["mood"])
        assert await code('{"type": "session.start"}') == "already_started"
        assert await code("{") == "bad_json"
        assert await code('{"type": "sing"}') == "unknown_type"
        assert await code('{"type": "text.append", "text": 3}') == "bad_field"
        assert await code(b"\x00") == "binary_not_accepted"
        too_long = "a" * (int(started["limits"]["append_chars"]) + 1)
        assert await code(json.dumps({"type": "text.append", "text": too_long})) == "text_too_long"
        await peer.send('{"type": "text.append", "text": "Still here."}')
        await peer.send('{"type": "turn.end"}')
        types = []
        while types[-1:] != ["turn.done"]:
            raw = await peer.recv()
            types.append("audio" if isinstance(raw, bytes) else json.loads(raw)["type"])
        assert types[0] == "turn.started"
        assert types.count("audio") == len(types) - 2


async def running(gateway: Gateway) -> float:
    async with httpx.AsyncClient(base_url=gateway.http) as http:
        metrics = (await http.get("/metrics")).text
    found = re.search(r"^voxgate_engine_running (\S+)$", metrics, re.M)
    assert found is not None
    return float(found[1])


async def test_a_cancel_frees_the_engine(gateway: Gateway) -> None:
    text = " ".join(ENGLISH * 5)
    async with VoiceClient(gateway.http) as client, aclosing(client.speak(text)) as events:
        async for event in events:
            if isinstance(event, Audio):
                await client.cancel(played_ms=0)
                break
        last = [event async for event in events][-1]
        assert isinstance(last, TurnCancelled)
        assert last.spoken + last.unspoken == text
        assert last.unspoken
        async with asyncio.timeout(10):
            while await running(gateway):
                await asyncio.sleep(0.01)
        after = [event async for event in client.speak("And on.")][-1]
        assert isinstance(after, TurnDone)
        assert after.samples > 0


async def test_a_cancelled_piece_gives_its_slot_up_within_two_steps(gateway: Gateway) -> None:
    async def within(steps: str) -> float:
        async with httpx.AsyncClient(base_url=gateway.http) as http:
            metrics = (await http.get("/metrics")).text
        found = re.search(
            rf'^voxgate_engine_cancel_steps_bucket{{le="{re.escape(steps)}"}} (\S+)$', metrics, re.M
        )
        assert found is not None
        return float(found[1])

    async def interrupted() -> None:
        async with VoiceClient(gateway.http) as client:
            for _ in range(10):
                async with aclosing(client.speak(ENGLISH[1])) as events:
                    async for event in events:
                        if isinstance(event, Audio):
                            await client.cancel(played_ms=0)
                            break
                    async for _ in events:
                        pass

    before = [await within(steps) for steps in ("2.0", "+Inf")]
    await asyncio.gather(*(interrupted() for _ in range(3)))
    async with asyncio.timeout(10):
        while await running(gateway):
            await asyncio.sleep(0.01)
    quick, all_of_them = np.subtract([await within(steps) for steps in ("2.0", "+Inf")], before)
    assert all_of_them >= 30
    assert quick >= 0.99 * all_of_them


async def test_a_listener_that_vanishes_frees_the_engine(gateway: Gateway) -> None:
    client = await VoiceClient(gateway.http).__aenter__()
    await client.send("text.append", text=" ".join(ENGLISH * 5))
    while not isinstance(await client.receive(), Audio):
        pass
    client.link._socket.transport.abort()
    async with asyncio.timeout(20):
        while await running(gateway):
            await asyncio.sleep(0.05)


def test_what_is_short_to_write_and_long_to_say_is_said(gateway: Gateway, tmp_path: Path) -> None:
    """Five numbers of seven digits are one piece of 370 phonemes, more than the model takes."""
    out = tmp_path / "out.wav"
    numbers = "Numbers 1234567 2345678 3456789 4567890 5678901"
    gateway.say(numbers, "-o", str(out), "--seed", "1")
    assert read(out).size > 12 * 24_000


def test_live_captions_are_read_in_their_time(gateway: Gateway, tmp_path: Path) -> None:
    cues = [
        (0.0, 2.0, "The quick brown fox"),
        (0.6, 3.0, "The quick brown fox jumps over the lazy dog."),
        (1.5, 4.0, "jumps over the lazy dog.\n今天天气很好，"),
        (2.5, 5.0, "今天天气很好，\n我们一起去公园散步。"),
    ]
    captions, out, report = (tmp_path / name for name in ("a.vtt", "o.wav", "r.json"))
    captions.write_text(
        "WEBVTT\n\n" + "\n".join(f"00:{a:06.3f} --> 00:{b:06.3f}\n{text}\n" for a, b, text in cues),
        encoding="utf-8",
    )
    arguments = ["--url", gateway.http, "-o", str(out), "--json", str(report), "--max-lag", "30"]
    done = subprocess.run(
        [*VOXGATE, "captions", str(captions), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(report.read_text())
    # Lines that rolled up are said once, in order, and nothing is left out.
    assert result["skipped"] == []
    assert "".join("".join(each["text"].split()) for each in result["curve"]) == "".join(
        (ENGLISH[0] + MANDARIN).split()
    )
    assert 0.0 <= result["lag_p50"] <= result["lag_most"] <= 30.0
    assert result["fastest"] <= 1.4
    assert read(out).size > 3 * 24_000


# -- the end --------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def speaking(gateway: Gateway) -> AsyncIterator[VoiceClient]:
    async with VoiceClient(gateway.http, captions=False) as client:
        await client.send("text.append", text=ENGLISH[1])
        await client.send("turn.end")
        while not isinstance(await client.receive(), Audio):
            pass
        yield client


async def test_an_interrupt_lets_listeners_hear_the_end(gateway: Gateway) -> None:
    children = psutil.Process(gateway.process.pid).children(recursive=True)
    assert children
    async with speaking(gateway) as client:
        for process in [gateway.process.pid, *(child.pid for child in children)]:
            # As a terminal does: to the gateway and to its engine.
            psutil.Process(process).send_signal(signal.SIGINT)
        while not isinstance(done := await client.receive(), TurnDone):
            pass
        assert done.failed == 0
    assert await asyncio.to_thread(gateway.process.wait, 60) == 0
    assert gateway.process.stderr is not None
    waits, stopped = gateway.process.stderr.read().splitlines()
    assert "what 1 session still hears is finished first" in waits
    assert stopped == "Stopped."
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive
