"""An LLM's answer, spoken into a file while it is written; any OpenAI-compatible endpoint will do.

export OPENAI_BASE_URL=http://127.0.0.1:11434/v1
python examples/llm_to_speech.py llama3.2 "Why is the sky blue?" sky.ogg
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator

import openai

from gateway.client import Audio, VoiceClient
from gateway.containers import OggOpusWriter
from gateway.protocol import TurnDone

GATEWAY = os.environ.get("VOXGATE_URL", "http://127.0.0.1:8080")


async def answer(model: str, question: str) -> AsyncIterator[str]:
    client = openai.AsyncOpenAI(api_key=os.environ.get("OPENAI_API_KEY", "none"))
    messages = [{"role": "user", "content": question}]
    stream = await client.chat.completions.create(model=model, messages=messages, stream=True)
    async for chunk in stream:
        if chunk.choices and chunk.choices[0].delta.content:
            print(chunk.choices[0].delta.content, end="", flush=True)
            yield chunk.choices[0].delta.content
    print()


async def main(model: str, question: str, path: str) -> None:
    async with VoiceClient(GATEWAY, live=False) as voice:
        with open(path, "wb") as file:
            writer = OggOpusWriter(file, voice.started.audio["pre_skip"])
            async for event in voice.speak(answer(model, question)):
                if isinstance(event, Audio):
                    writer.write(event.payload, event.samples)
                elif isinstance(event, TurnDone):
                    writer.close(event.samples)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
