from __future__ import annotations

import asyncio
import json

import pytest
from fake_engine import Script
from gateway_conftest import Run
from test_tls import HERE

from gateway.cli import main


async def probe(*arguments: str) -> int:
    return await asyncio.to_thread(main, ["probe", *arguments])


@pytest.mark.parametrize("tls", [{}, HERE])
async def test_a_gateway_that_speaks_is_healthy(
    run: Run,
    tls: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with run(**tls, ready_cache_seconds=0) as running:
        monkeypatch.setenv("VOXGATE_PORT", str(running.port))
        for name, value in tls.items():
            monkeypatch.setenv(f"VOXGATE_{name.upper()}", value)
        assert await probe() == 0
        assert await probe("--ready") == 0
        running.engine.probe = Script(samples=0)
        assert await probe("--ready") == 1
        answers = capsys.readouterr().out.splitlines()
        assert json.loads(answers[-1])["reason"] == "silent"
        assert await probe() == 0


async def test_nobody_there(unused_tcp_port: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert await probe("--url", f"http://127.0.0.1:{unused_tcp_port}") == 1
    assert "No answer at" in capsys.readouterr().err
