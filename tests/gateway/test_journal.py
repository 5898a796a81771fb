"""Log lines and spans of a session: ids in all of them, text in none unless asked for."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest
from conftest import Run
from fake_engine import FakeSynthesizer, Script
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from engine.api import SpeechError
from gateway.commands.logs import JsonFormatter
from gateway.journal import FIELDS, Journal, make_tracer
from gateway.metrics import Metrics

TEXT = "Zebras are shy. Nobody knows why they are."


def engine() -> FakeSynthesizer:
    """The second piece fails once."""
    again = SpeechError("engine_restarting", "Just now.", retryable=True)
    return FakeSynthesizer(
        lambda _request, number: Script(fail_after=0 if number == 1 else None, error=again)
    )


async def events(
    run: Run, caplog: pytest.LogCaptureFixture, **options: Any
) -> list[dict[str, Any]]:
    with caplog.at_level(logging.INFO, "voxgate.journal"):
        async with run(engine(), **options) as running:
            async with running.client() as client:
                async for _ in client.speak(TEXT):
                    pass
                session = client.started.session
            await running.quiet()
    found = [getattr(record, FIELDS) for record in caplog.records if hasattr(record, FIELDS)]
    assert {event["session"] for event in found} == {session}
    return found


async def test_every_event_has_its_ids(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    found = await events(run, caplog)
    told = [
        (event["event"], event.get("turn"), event.get("piece"), event.get("outcome"))
        for event in found
    ]
    assert told[:2] == [("session opened", None, None, None), ("turn started", 1, None, None)]
    for expected in (
        ("piece started", 1, 0, None),
        ("piece over", 1, 0, "done"),
        ("piece over", 1, 1, "retried"),
        ("piece over", 1, 1, "done"),
        ("turn over", 1, None, "done"),
    ):
        assert expected in told
    assert told[-1][0] == "session closed"
    assert [event["attempt"] for event in found if event["event"] == "piece started"] == [0, 0, 1]


async def test_text_only_where_it_is_asked_for(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    await events(run, caplog)
    assert "ebra" not in caplog.text
    caplog.clear()
    found = await events(run, caplog, log_text=1)
    assert "Zebras are shy. " in [event.get("text") for event in found]


def test_json_lines_hold_fields_or_the_message() -> None:
    formatter = JsonFormatter()
    record = logging.makeLogRecord(
        {"name": "voxgate.journal", "levelname": "INFO", "created": 0.5, FIELDS: {"turn": 3}}
    )
    assert json.loads(formatter.format(record)) == {
        "time": "1970-01-01T00:00:00.500+00:00",
        "level": "info",
        "logger": "voxgate.journal",
        "turn": 3,
    }
    try:
        raise ValueError("it broke")
    except ValueError:
        failed = logging.makeLogRecord({"msg": "no %s", "args": ("luck",), "levelname": "ERROR"})
        failed.exc_info = sys.exc_info()
    values = json.loads(formatter.format(failed))
    assert values["message"] == "no luck"
    assert "it broke" in values["error"]


def test_spans_lie_in_each_other() -> None:
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    journal = Journal("abc", Metrics(), tracer=provider.get_tracer("test"))
    journal.turn_started(1)
    journal.piece_started(1, 0, 0, "Hello.")
    journal.piece_over("retried", 1, 0)
    journal.piece_started(1, 0, 1, "Hello.")
    journal.piece_over("done", 1, 0)
    journal.turn_over("done", 1)
    journal.turn_started(2)
    journal.close("disconnected")
    found = {
        (span.name, span.attributes.get("voxgate.turn"), span.attributes["voxgate.outcome"]): span
        for span in spans.get_finished_spans()
        if span.attributes
    }
    session = found["voxgate.session", None, "disconnected"]
    turn = found["voxgate.turn", 1, "done"]
    piece = found["voxgate.piece", 1, "done"]
    assert piece.parent is not None
    assert turn.parent is not None
    assert piece.parent.span_id == turn.context.span_id
    assert turn.parent.span_id == session.context.span_id
    assert ("voxgate.piece", 1, "retried") in found
    assert ("voxgate.turn", 2, "disconnected") in found
    assert all("Hello" not in str(span.attributes) for span in found.values())
    assert piece.attributes is not None
    assert piece.attributes["voxgate.characters"] == 6


def test_a_tracer_obeys_the_standard_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    with make_tracer().start_as_current_span("x") as span:
        assert span.get_span_context().is_valid
        assert not span.is_recording()


async def test_sockets_and_encoders_are_measured(run: Run) -> None:
    async with run() as running:
        async with running.client() as client:
            async for _ in client.speak(TEXT):
                pass
            page = running.gateway.metrics.render().decode()
    values = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
    assert float(values["voxgate_encode_seconds_total"]) > 0
    assert float(values["voxgate_socket_buffer_bytes"]) >= 0
    assert float(values["voxgate_pieces_started_total"]) == 2
