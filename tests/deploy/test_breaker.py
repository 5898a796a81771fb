from __future__ import annotations

import sys
from pathlib import Path

import pytest
from gateway_conftest import Run

sys.path.insert(0, str(Path(__file__).parents[2] / "deploy" / "nginx"))

import asyncio

import breaker


def gateways() -> list[breaker.Gateway]:
    return [breaker.Gateway(f"http://g{number}:8080", fall=2, rise=3) for number in (1, 2)]


def test_it_takes_several_answers_to_change_ones_mind() -> None:
    gateway = gateways()[0]
    assert [gateway.hear(well) for well in (False, True, False, False)] == [False] * 3 + [True]
    assert gateway.down
    assert [gateway.hear(well) for well in (True, True, False, True, True, True)][-1]
    assert not gateway.down


def test_those_that_are_down_are_marked_unless_all_are() -> None:
    one, two = gateways()
    one.down = True
    text = breaker.upstream([one, two])
    assert "server g1:8080 max_fails=3 fail_timeout=5s down;" in text
    assert "server g2:8080 max_fails=3 fail_timeout=5s;" in text
    two.down = True
    assert " down;" not in breaker.upstream([one, two])
    shipped = Path(breaker.__file__).with_name("upstream.conf").read_text()
    assert breaker.upstream(gateways()) == shipped.replace("gateway-", "g")


@pytest.mark.parametrize(
    ("state", "draining", "asked"),
    [
        ("ready", False, True),
        ("restarting", False, False),
        ("ready", True, True),
    ],
)
async def test_one_that_drains_stays_to_be_found(
    run: Run, state: str, draining: bool, asked: bool
) -> None:
    async with run() as running:
        running.engine.state = state
        running.gateway.readiness.draining = draining
        assert await asyncio.to_thread(breaker.asks, running.url, 5.0) is asked


def test_nobody_there(unused_tcp_port: int) -> None:
    assert not breaker.asks(f"http://127.0.0.1:{unused_tcp_port}", 1.0)
