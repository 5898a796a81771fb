"""A pipecat pipeline whose voice is this gateway: lines of standard input, spoken into a WAV file.

    pip install pipecat-ai
    printf 'Hello.\nHow are you?\n' | python examples/pipecat_pipeline.py speech.wav

In an agent of your own put `voice()` between the language model and the transport's output.
"""

import asyncio
import os
import sys
import wave

from pipecat.frames.frames import EndFrame, Frame, TTSAudioRawFrame, TTSSpeakFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.openai.tts import OpenAITTSService
from pipecat.workers.runner import WorkerRunner

GATEWAY = os.environ.get("VOXGATE_URL", "http://127.0.0.1:8080")
SAMPLE_RATE = 24_000


def voice(name: str = "alloy") -> OpenAITTSService:
    return OpenAITTSService(
        base_url=f"{GATEWAY}/v1",
        api_key=os.environ.get("VOXGATE_API_KEY", "none"),
        sample_rate=SAMPLE_RATE,
        settings=OpenAITTSService.Settings(voice=name, model="tts-1"),
    )


class Recorder(FrameProcessor):
    def __init__(self, file: wave.Wave_write) -> None:
        super().__init__()
        self._file = file

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, TTSAudioRawFrame):
            self._file.writeframes(frame.audio)
        await self.push_frame(frame, direction)


async def main(path: str) -> None:
    with wave.open(path, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLE_RATE)
        worker = PipelineWorker(Pipeline([voice(), Recorder(file)]))
        await worker.queue_frames([*map(TTSSpeakFrame, sys.stdin), EndFrame()])
        runner = WorkerRunner()
        await runner.add_workers(worker)
        await runner.run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
