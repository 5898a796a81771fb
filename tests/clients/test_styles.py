"""Emotion, instructions and style, where a checkpoint offers something and where it does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx
import openai
import pytest
from elevenlabs import VoiceSettings
from elevenlabs.client import AsyncElevenLabs
from fake_engine import LIMITS, FakeSynthesizer
from gateway_conftest import Run

from engine.api import EngineLimits
from gateway.http.styles import emotions, of_amount, of_emotion, of_instructions

OFFERED = ("oral_5", "oral_9", "laugh_1", "laugh_2", "break_6")


class Styled(FakeSynthesizer):
    @property
    def limits(self) -> EngineLimits:
        return replace(LIMITS, styles=OFFERED)


@pytest.mark.parametrize(
    ("emotion", "style"),
    [
        (None, ""),
        ("neutral", ""),
        ("Happy", "laugh_1"),
        ("calm", "break_6"),
        ("laugh_2 oral_5", "laugh_2 oral_5"),
        ("hesitant", None),
        ("angry", None),
        (" ", ""),
    ],
)
def test_emotions(emotion: str | None, style: str | None) -> None:
    assert of_emotion(emotion, OFFERED) == style


def test_what_is_offered_is_listed() -> None:
    assert emotions(()) == ["neutral"]
    assert emotions(OFFERED)[:2] == ["neutral", "cheerful"]
    assert "hesitant" not in emotions(OFFERED)


def test_instructions_are_searched_for_what_there_is() -> None:
    assert of_instructions("Be cheerful, and calm!", OFFERED) == "laugh_1 break_6"
    assert of_instructions("Happy and laughing", OFFERED) == "laugh_1"
    assert of_instructions("Speak like a pirate.", OFFERED) is None


def test_amounts() -> None:
    assert of_amount(1.0, OFFERED) == "oral_9"
    assert of_amount(0.55, OFFERED) == "oral_5"
    assert of_amount(0.1, OFFERED) is None


async def test_they_reach_the_engine_by_every_api(run: Run) -> None:
    engine = Styled()
    async with run(engine) as running:
        async with httpx.AsyncClient(base_url=running.url) as http:
            body: dict[str, Any] = {"text": "Hi you.", "emotion": "happy"}
            assert (await http.post("/tts", json=body)).status_code == 200
            refused = (await http.post("/tts", json={**body, "emotion": "angry"})).json()
        client = openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key="none")
        await client.audio.speech.create(
            model="gpt-4o-mini-tts", voice="alloy", input="Hi you.", instructions="Stay calm."
        )
        eleven = AsyncElevenLabs(base_url=running.url, api_key="none").text_to_speech
        settings = VoiceSettings(style=1.0)
        assert [part async for part in eleven.convert("ann", text="Hi.", voice_settings=settings)]
        asked = [request.style for request in engine.requests]
    assert asked == [("laugh_1",), ("break_6",), ("oral_9",)]
    assert refused["code"] == "unsupported_emotion"
    assert {"neutral", "happy", "laugh_2"} <= set(refused["available"])
