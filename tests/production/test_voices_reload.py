"""Voices that come, change and go while sessions run."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from fake_engine import FakeSynthesizer
from gateway_conftest import Run, Running

from gateway.client import GatewayError, VoiceClient


async def say(client: VoiceClient) -> None:
    async for _ in client.speak("One sentence."):
        pass


def asked(running: Running) -> str:
    return running.engine.requests[-1].voice


async def test_new_sessions_get_the_new_voices_and_old_ones_keep_theirs(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "voices"
    engine = FakeSynthesizer()
    engine.files = (file,)
    async with run(engine, reload_seconds=0.02) as running:
        file.write_text("anna bao")
        while [voice.id for voice in engine.listed] != ["anna", "bao"]:
            await asyncio.sleep(0.005)
        first = engine.listed[0].key
        async with running.client(voice="anna") as old:
            assert old.started.voices == ["anna", "bao"]
            await say(old)
            assert asked(running) == first
            file.write_text("anna carl")
            while engine.listed[0].key == first:
                await asyncio.sleep(0.005)
            await say(old)
            assert asked(running) == first, "it goes on with the voice it began with"
            async with running.client(voice="anna") as new:
                assert new.started.voices == ["anna", "carl"]
                await say(new)
                assert asked(running) == engine.listed[0].key != first
            with pytest.raises(GatewayError) as refused:
                async with running.client(voice="bao"):
                    pass
            assert refused.value.code == "unknown_voice"
        with caplog.at_level(logging.ERROR, "voxgate"):
            file.write_text("")
            running.server.reload()
            while "names no voice; those of before stay" not in caplog.text:
                await asyncio.sleep(0.005)
        async with running.client(voice="carl") as client:
            await say(client)
            assert asked(running) == engine.listed[1].key
