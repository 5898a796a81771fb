"""Records `pieces/embedded_voice.*` with the real engine: what the tests of seams are made of."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import numpy as np
import soundfile

from engine.api import SAMPLE_RATE, SpeechRequest
from engine.settings import EngineSettings
from engine.synthesizer import create

HERE = Path(__file__).parent / "pieces"


async def record() -> None:
    texts = [piece["text"] for piece in json.loads((HERE / "embedded_voice.json").read_text())]
    engine = create(EngineSettings())
    await engine.start()
    pieces = []
    for text in texts:
        chunks = [chunk.pcm async for chunk in engine.speak(SpeechRequest(text=text, seed=1))]
        pieces.append(np.concatenate(chunks))
    await engine.close()
    audio = (np.clip(np.concatenate(pieces), -1.0, 1.0) * 32767.0).round().astype("<i2")
    soundfile.write(HERE / "embedded_voice.flac", audio, SAMPLE_RATE, subtype="PCM_16")
    index = [
        {"text": text, "samples": piece.size} for text, piece in zip(texts, pieces, strict=True)
    ]
    (HERE / "embedded_voice.json").write_text(json.dumps(index, ensure_ascii=False, indent=1))


if __name__ == "__main__":
    asyncio.run(record())
