"""Live captions read aloud and shown: a text file that OBS shows as a "Text (read from file)".

    python examples/obs_captions.py captions.txt speech.wav < captions-as-they-come

Every line of standard input is a caption; the file always holds the words being heard.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from gateway.client import Audio, VoiceClient
from gateway.containers import WavWriter
from gateway.protocol import Caption

GATEWAY = os.environ.get("VOXGATE_URL", "http://127.0.0.1:8080")
SAMPLE_RATE = 24_000


async def lines() -> AsyncIterator[str]:
    while line := await asyncio.to_thread(sys.stdin.readline):
        yield line


async def show(caption: Caption, began: float, shown: Path) -> None:
    """Write each word's caption when its time comes."""
    at = began + caption.start_sample / SAMPLE_RATE
    await asyncio.sleep(max(0.0, at - asyncio.get_running_loop().time()))
    shown.write_text(caption.text.strip())


async def main(shown: Path, audio: Path) -> None:
    began, showing = None, []
    loop = asyncio.get_running_loop()
    async with VoiceClient(GATEWAY, format="pcm_s16le") as client:
        with audio.open("wb") as file:
            writer = WavWriter(file)
            async for event in client.speak(lines()):
                if isinstance(event, Audio):
                    began = began or loop.time() + 0.1
                    writer.write(event.payload, event.samples)
                elif isinstance(event, Caption) and not event.final and event.text.strip():
                    showing.append(asyncio.create_task(show(event, began or loop.time(), shown)))
            writer.close()
    await asyncio.gather(*showing)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
