"""What one session did, for its operators: log lines with ids, and spans for OpenTelemetry.

No line holds a user's text unless that is asked for (`log_text`). All goes on to the metrics.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from gateway.metrics import Metrics
from gateway.settings import Settings

_log = logging.getLogger("voxgate.journal")
FIELDS = "voxgate"
"""Attribute of a log record: its ids and values as a mapping."""


class Journal:
    """A `session.Observer` of one session. `tracer`: of OpenTelemetry, if spans are wanted."""

    def __init__(
        self, session: str, metrics: Metrics, *, text: bool = False, tracer: Any = None
    ) -> None:
        self._session = session
        self._metrics = metrics
        self._text = text
        self._tracer = tracer
        self._spans: dict[tuple[int, ...], Any] = {}
        self._open((), "session")
        self._tell("session opened")

    def close(self, why: str) -> None:
        """The session is over."""
        self._tell("session closed", why=why)
        for key in sorted(self._spans, key=len, reverse=True):
            self._end(key, why)

    def turn_started(self, turn: int) -> None:
        self._metrics.turn_started(turn)
        self._open((turn,), "turn", turn=turn)
        self._tell("turn started", turn=turn)

    def turn_over(self, outcome: str, turn: int) -> None:
        self._metrics.turn_over(outcome, turn)
        self._tell("turn over", turn=turn, outcome=outcome)
        self._end((turn,), outcome)

    def piece_started(self, turn: int, piece: int, attempt: int, text: str) -> None:
        self._metrics.piece_started(turn, piece, attempt, text)
        values = {"turn": turn, "piece": piece, "attempt": attempt, "characters": len(text)}
        if self._text:
            values["text"] = text  # type: ignore[assignment]
        self._open((turn, piece), "piece", **values)
        self._tell("piece started", **values)

    def piece_over(self, outcome: str, turn: int, piece: int) -> None:
        self._metrics.piece_over(outcome, turn, piece)
        self._tell("piece over", turn=turn, piece=piece, outcome=outcome)
        self._end((turn, piece), outcome)

    def runaway(self, reason: str, outcome: str) -> None:
        self._metrics.runaway(reason, outcome)
        self._tell("runaway", reason=reason, outcome=outcome)

    def first_packet(self, seconds: float) -> None:
        self._metrics.first_packet(seconds)

    def first_audible(self, seconds: float) -> None:
        self._metrics.first_audible(seconds)
        self._tell("first audible", ms=round(seconds * 1000.0, 1))

    def packet(self, payload_bytes: int, lead: float) -> None:
        self._metrics.packet(payload_bytes, lead)

    def underrun(self, seconds: float) -> None:
        self._metrics.underrun(seconds)
        self._tell("underrun", ms=round(seconds * 1000.0, 1))

    def close_call(self) -> None:
        self._metrics.close_call()

    def prompt(self, tokens: int, cached: int) -> None:
        self._metrics.prompt(tokens, cached)

    def error(self, code: str) -> None:
        self._metrics.error(code)
        self._tell("error", code=code)

    def _tell(self, event: str, **values: Any) -> None:
        if _log.isEnabledFor(logging.INFO):
            named = {"session": self._session, **values}
            words = " ".join(f"{name}={value!r}" for name, value in named.items())
            _log.info("%s %s", event, words, extra={FIELDS: {"event": event, **named}})

    def _open(self, key: tuple[int, ...], name: str, **values: Any) -> None:
        if self._tracer is None:
            return
        from opentelemetry.trace import set_span_in_context

        self._end(key, "replaced")
        parent = self._spans.get(key[:-1]) if key else None
        context = set_span_in_context(parent) if parent is not None else None
        span = self._tracer.start_span(f"voxgate.{name}", context=context)
        for field, value in {"session": self._session, **values}.items():
            span.set_attribute(f"voxgate.{field}", value)
        self._spans[key] = span

    def _end(self, key: tuple[int, ...], outcome: str) -> None:
        span = self._spans.pop(key, None)
        if span is not None:
            span.set_attribute("voxgate.outcome", outcome)
            span.end()


def journal_maker(settings: Settings, metrics: Metrics) -> Callable[[str], Journal]:
    """From a session's name to its journal. Raises `ModuleNotFoundError` when traces are wanted and
    OpenTelemetry is not installed."""
    tracer = make_tracer() if settings.traces else None
    return lambda name: Journal(name, metrics, text=bool(settings.log_text), tracer=tracer)


def make_tracer() -> Any:
    """Spans to where the standard variables of OpenTelemetry say (`OTEL_EXPORTER_OTLP_ENDPOINT` and
    the like)."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": "voxgate"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider.get_tracer("voxgate")
