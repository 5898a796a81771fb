"""Runs the session of `examples/livekit_agent.py` without a room: what it says goes to a file.

python livekit_driver.py speech.pcm "What to say."
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

os.environ.setdefault("OPENAI_API_KEY", "none")
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from livekit import rtc
from livekit.agents import Agent, utils
from livekit.agents.voice.io import AudioOutput, AudioOutputCapabilities
from livekit_agent import INSTRUCTIONS, make_session


class Recorder(AudioOutput):
    """A sink that hears everything at once."""

    def __init__(self) -> None:
        super().__init__(label="recorder", capabilities=AudioOutputCapabilities(pause=False))
        self.heard = bytearray()
        self.rate = 0

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        await super().capture_frame(frame)
        self.heard += frame.data.cast("B")
        self.rate = frame.sample_rate

    def flush(self) -> None:
        super().flush()
        seconds = len(self.heard) / 2 / (self.rate or 1)
        self.on_playback_finished(playback_position=seconds, interrupted=False)

    def clear_buffer(self) -> None:
        self.on_playback_finished(playback_position=0.0, interrupted=True)


async def main(path: str, text: str) -> None:
    async with utils.http_context.open():
        session, recorder = make_session(), Recorder()
        session.output.audio = recorder
        await session.start(Agent(instructions=INSTRUCTIONS), record=False)
        await session.say(text)
        await session.aclose()
    Path(path).write_bytes(recorder.heard)
    print(recorder.rate)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
