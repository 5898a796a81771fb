"""A telephone: mu-law at 8 kHz in packets of 20 ms at their time, as a media stream wants them.

    python examples/telephone.py "Hello, this is Voxgate." > call.ulaw

Each line that comes on standard input while it speaks interrupts it and is said instead.
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable

from gateway.client import Audio, VoiceClient
from gateway.protocol import TurnCancelled

GATEWAY = os.environ.get("VOXGATE_URL", "http://127.0.0.1:8080")
PACKET_SECONDS = 0.02


async def call(client: VoiceClient, text: str, send: Callable[[bytes], None]) -> str:
    """Say a text in the time it takes to hear it; returns what was heard."""
    began = None
    sent = 0
    async for event in client.speak(text):
        if isinstance(event, Audio):
            began = began or time.monotonic()
            await asyncio.sleep(began + sent * PACKET_SECONDS - time.monotonic())
            send(event.payload)
            sent += 1
        elif isinstance(event, TurnCancelled):
            return event.spoken
    return text


async def main(text: str) -> None:
    async with VoiceClient(GATEWAY, format="mulaw", captions=True) as client:
        loop = asyncio.get_running_loop()
        while text:
            speaking = asyncio.create_task(call(client, text, sys.stdout.buffer.write))
            reading = loop.run_in_executor(None, sys.stdin.readline)
            await asyncio.wait((speaking, reading), return_when=asyncio.FIRST_COMPLETED)
            if not speaking.done() and (await reading).strip():
                await client.cancel()
            print("heard:", await speaking, file=sys.stderr)
            text = (await reading).strip()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
