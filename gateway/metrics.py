"""Prometheus metrics in a registry of their own. Names and labels are stable."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from engine.api import EngineStats, Spread

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_STATES = ("starting", "ready", "restarting", "stopped")
_LATENCY = (0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 2, 5)
_LAG = (0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5)
_LEAD = (0.0, 0.05, 0.1, 0.2, 0.5, 1, 2, 4, 8, 16)


class Metrics:
    """What sessions and connections report; a `session.Observer`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.on_underrun: Callable[[], None] = lambda: None
        self.on_close_call: Callable[[], None] = lambda: None
        registry = self.registry
        self.sessions = Gauge("voxgate_sessions", "Open sessions.", registry=registry)
        self._sessions_total = Counter(
            "voxgate_sessions_closed", "Sessions closed.", ["code"], registry=registry
        )
        self._refused = Counter(
            "voxgate_sessions_refused", "Sessions not let in.", ["code"], registry=registry
        )
        self._resumed = Counter(
            "voxgate_sessions_resumed",
            "Times a session went on over another connection.",
            registry=registry,
        )
        self._turns_started = Counter("voxgate_turns_started", "Turns started.", registry=registry)
        self._turns = Counter("voxgate_turns", "Turns over.", ["outcome"], registry=registry)
        self._pieces = Counter(
            "voxgate_pieces", "Pieces of text over.", ["outcome"], registry=registry
        )
        self._started = Counter(
            "voxgate_pieces_started", "Pieces given to the engine.", registry=registry
        )
        self._encoding = Counter(
            "voxgate_encode_seconds", "CPU time spent in audio encoders.", registry=registry
        )
        self._runaways = Counter(
            "voxgate_runaways",
            "Pieces that did not find their end, by how it showed and whether they were retried.",
            ["reason", "outcome"],
            registry=registry,
        )
        self._first_packet = Histogram(
            "voxgate_first_packet_seconds",
            "From the text that completes a turn's first piece to its first packet, "
            "for listeners who sat in silence.",
            buckets=_LATENCY,
            registry=registry,
        )
        self._first_audible = Histogram(
            "voxgate_first_audible_seconds",
            "The same to the first audible sample.",
            buckets=_LATENCY,
            registry=registry,
        )
        self._lead = Histogram(
            "voxgate_lead_seconds",
            "Audio the listener has in hand when a packet goes out.",
            buckets=_LEAD,
            registry=registry,
        )
        self._close_calls = Counter(
            "voxgate_close_calls",
            "Packets that came when a listener had less than 40 ms left, while text was there.",
            registry=self.registry,
        )
        self._underruns = Counter(
            "voxgate_underruns",
            "Times a listener with a 100 ms jitter buffer ran dry while text was there.",
            registry=registry,
        )
        self._dry = Counter("voxgate_dry_seconds", "How long they stayed dry.", registry=registry)
        self._packets = Counter("voxgate_packets", "Audio packets sent.", registry=registry)
        self._bytes = Counter("voxgate_audio_bytes", "Bytes of their payload.", registry=registry)
        self._errors = Counter("voxgate_errors", "Errors by code.", ["code"], registry=registry)
        self._cancel = Histogram(
            "voxgate_cancel_seconds",
            "From the decision to cancel a piece to the engine's iterator closed.",
            buckets=_LATENCY,
            registry=registry,
        )
        self._prompt = Counter(
            "voxgate_prompt_tokens", "Prompt tokens of pieces.", registry=registry
        )
        self._cached = Counter(
            "voxgate_prompt_tokens_cached", "Of them from the prefix cache.", registry=registry
        )
        self._loop_lag = Histogram(
            "voxgate_loop_lag_seconds",
            "How late the event loop calls what is due, looked at every 5 ms.",
            buckets=_LAG,
            registry=registry,
        )
        self._loop_block = Histogram(
            "voxgate_loop_block_seconds",
            "Of that, what the loop's own thread worked: not the machine's doing but ours.",
            buckets=_LAG,
            registry=registry,
        )
        self.loop_lag_longest = Gauge(
            "voxgate_loop_lag_longest_seconds",
            "The greatest lag of the last 30 to 60 seconds.",
            registry=registry,
        )
        self._unready = Counter(
            "voxgate_readiness_failures", "Readiness checks that failed.", registry=registry
        )

    def watch(self, stats: Callable[[], EngineStats]) -> None:
        """Read the engine at every scrape."""
        self.registry.register(_EngineCollector(stats))

    def watch_sockets(self, unsent: Callable[[], int]) -> None:
        """Read the bytes that wait in sockets at every scrape."""
        gauge = Gauge(
            "voxgate_socket_buffer_bytes",
            "Bytes that wait in this process for sockets to take them.",
            registry=self.registry,
        )
        gauge.set_function(unsent)

    def watch_admission(self, **values: Callable[[], float]) -> None:
        """Read `pressure`, `demand` and `capacity` of admission at every scrape."""
        for name, what in (
            ("pressure", "Demand over capacity: new sessions are refused at 1."),
            ("demand", "Streams at once that the open sessions are expected to need."),
            ("capacity", "Streams at once that the engine was measured to carry without a gap."),
        ):
            gauge = Gauge(f"voxgate_admission_{name}", what, registry=self.registry)
            gauge.set_function(values[name])

    def loop_lag(self, seconds: float, worked: float) -> None:
        self._loop_lag.observe(seconds)
        self._loop_block.observe(worked)

    def encoded(self, seconds: float) -> None:
        self._encoding.inc(seconds)

    def render(self) -> bytes:
        return generate_latest(self.registry)

    def session_closed(self, code: str) -> None:
        self._sessions_total.labels(code).inc()

    def session_refused(self, code: str) -> None:
        self._refused.labels(code).inc()

    def resumed(self) -> None:
        self._resumed.inc()

    def cancelled(self, seconds: float) -> None:
        self._cancel.observe(seconds)

    def not_ready(self) -> None:
        self._unready.inc()

    def turn_started(self, turn: int) -> None:
        self._turns_started.inc()

    def turn_over(self, outcome: str, turn: int) -> None:
        self._turns.labels(outcome).inc()

    def first_packet(self, seconds: float) -> None:
        self._first_packet.observe(seconds)

    def first_audible(self, seconds: float) -> None:
        self._first_audible.observe(seconds)

    def packet(self, payload_bytes: int, lead: float) -> None:
        self._packets.inc()
        self._bytes.inc(payload_bytes)
        self._lead.observe(lead)

    def underrun(self, seconds: float) -> None:
        self._underruns.inc()
        self._dry.inc(seconds)
        self.on_underrun()

    def close_call(self) -> None:
        self._close_calls.inc()
        self.on_close_call()

    def piece_started(self, turn: int, piece: int, attempt: int, text: str) -> None:
        self._started.inc()

    def piece_over(self, outcome: str, turn: int, piece: int) -> None:
        self._pieces.labels(outcome).inc()

    def runaway(self, reason: str, outcome: str) -> None:
        self._runaways.labels(reason, outcome).inc()

    def prompt(self, tokens: int, cached: int) -> None:
        self._prompt.inc(tokens)
        self._cached.inc(cached)

    def error(self, code: str) -> None:
        self._errors.labels(code).inc()


class _EngineCollector(Collector):
    def __init__(self, stats: Callable[[], EngineStats]) -> None:
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        stats = self._stats()
        state = GaugeMetricFamily("voxgate_engine_state", "1 for the state.", labels=["state"])
        for name in _STATES:
            state.add_metric([name], float(stats.state == name))
        yield state
        for name, what, value in (
            ("running", "Pieces the engine is speaking.", stats.running),
            ("waiting", "Pieces that wait for it.", stats.waiting),
            ("decoding", "Streams with a live codec state.", stats.decoding),
            ("kv_cache_usage", "Share of the KV cache in use.", stats.kv_cache_usage),
        ):
            yield GaugeMetricFamily(f"voxgate_engine_{name}", what, value=value)
        for name, what, total in (
            ("frames", "Frames generated.", stats.frames),
            ("steps", "Steps of the language model.", stats.steps),
            ("decode_seconds", "Time the codec spent decoding.", stats.decode_seconds),
            ("prefix_cache_queries", "Prompt tokens looked up.", stats.prefix_cache_queries),
            ("prefix_cache_hits", "Of them found.", stats.prefix_cache_hits),
            ("preemptions", "Pieces put back by the scheduler.", stats.preemptions),
            ("restarts", "Engine restarts.", stats.restarts),
        ):
            yield CounterMetricFamily(f"voxgate_engine_{name}", what, value=total)
        for name, what, spread in (
            (
                "cancel_steps",
                "Steps from the cancelling of a piece to its slot being free, "
                "the one under way included.",
                stats.cancel_steps,
            ),
            ("cancel_seconds", "The same in seconds.", stats.cancel_seconds),
        ):
            family = HistogramMetricFamily(f"voxgate_engine_{name}", what)
            family.add_metric([], _buckets(spread), spread.total)
            yield family


def _buckets(spread: Spread) -> list[tuple[str, float]]:
    """Counts up to each bound, as Prometheus has them."""
    bounds = [*map(str, spread.bounds), "+Inf"]
    return list(zip(bounds, map(float, itertools.accumulate(spread.counts)), strict=True))
