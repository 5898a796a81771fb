from __future__ import annotations

import httpx
import pytest
from fake_engine import FakeSynthesizer, Script
from gateway_conftest import Run

from engine.api import SpeechError
from gateway.client import VoiceClient
from gateway.failures import Failures


class TestShare:
    def test_some_may_fail_and_what_is_long_ago_is_forgotten(self) -> None:
        now = 0.0
        failures = Failures(0.5, lambda: now)
        for failed in (True, False) * 10:
            failures.note(failed=failed)
        assert failures.too_many() is None
        failures.note(failed=True)
        assert failures.too_many() == "11 of the last 21 pieces failed."
        now = 30.5
        assert failures.too_many() is None

    def test_few_say_nothing_and_zero_asks_for_nothing(self) -> None:
        failures, silent = Failures(0.5, lambda: 0.0), Failures(0.0, lambda: 0.0)
        for _ in range(7):
            failures.note(failed=True)
            silent.note(failed=True)
        assert failures.too_many() is None
        failures.note(failed=True)
        silent.note(failed=True)
        assert failures.too_many() is not None
        assert silent.too_many() is None


async def say(client: VoiceClient, turns: int) -> None:
    for _ in range(turns):
        async for _ in client.speak("One sentence."):
            pass


@pytest.mark.parametrize(
    ("error", "ready"),
    [
        (RuntimeError("a fault"), False),
        (SpeechError("frame_ring_overrun", "x"), False),
        (SpeechError("unpronounceable", "x"), True),
        (SpeechError("engine_restarting", "x"), True),
    ],
)
async def test_faults_of_ours_make_it_not_ready_and_texts_do_not(
    run: Run, error: Exception, ready: bool
) -> None:
    engine = FakeSynthesizer(lambda _request, _number: Script(fail_after=0, error=error))
    async with run(engine, piece_retry_seconds=0) as running, httpx.AsyncClient() as http:
        async with running.client() as client:
            await say(client, 12)
        found = await http.get(running.url + "/health/ready")
        assert (found.status_code == 200) is ready
        if not ready:
            assert found.json()["reason"] == "failing"
            assert "of the last" in found.json()["message"]
