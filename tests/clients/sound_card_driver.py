"""Plays a text on the default sound card, as a program of somebody else would.

python sound_card_driver.py URL (file|stream|speakers) SAMPLES

What was given to the card is left in the file SAMPLES, 16-bit.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import openai
from openai.helpers import LocalAudioPlayer

from gateway.client import Audio, VoiceClient
from gateway.speakers import Speakers

TEXT = "Hello there. How are you today?"


async def main(url: str, how: str, samples: Path) -> None:
    if how == "speakers":
        await speakers(url, samples)
        return
    client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none")
    wishes = {"model": "tts-1", "voice": "alloy", "input": TEXT, "response_format": "pcm"}
    if how == "file":
        speech = await client.audio.speech.create(**wishes)
        await LocalAudioPlayer().play(speech)
        samples.write_bytes(speech.content)
        return
    async with client.audio.speech.with_streaming_response.create(**wishes) as speech:
        await LocalAudioPlayer().play(speech)
    samples.write_bytes(b"")


async def speakers(url: str, samples: Path) -> None:
    heard = bytearray()

    class Client(VoiceClient):
        async def speak(self, text):
            async for event in super().speak(text):
                if isinstance(event, Audio):
                    heard.extend(event.payload)
                yield event

    async with Client(url, format="pcm_s16le") as client:
        with Speakers() as card:
            await card.play(client, TEXT)
    samples.write_bytes(heard)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
