"""What a gateway says of itself on /metrics, as far as a benchmark wants it."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from urllib.parse import urlsplit, urlunsplit

import httpx
from prometheus_client.parser import text_string_to_metric_families

from bench.stats import rounded

_SAMPLES = {
    "prompt_tokens": "voxgate_prompt_tokens_total",
    "cached_tokens": "voxgate_prompt_tokens_cached_total",
    "frames": "voxgate_engine_frames_total",
    "steps": "voxgate_engine_steps_total",
    "preemptions": "voxgate_engine_preemptions_total",
    "freed": "voxgate_engine_cancel_seconds_count",
    "freed_seconds": "voxgate_engine_cancel_seconds_sum",
    "freed_steps": "voxgate_engine_cancel_steps_sum",
    "freed_within_two_steps": "voxgate_engine_cancel_steps_bucket 2.0",
}


@dataclass(frozen=True, slots=True)
class Counters:
    """Sums since the gateway started, or over a window when two were subtracted."""

    prompt_tokens: float = 0.0
    """Of all pieces."""
    cached_tokens: float = 0.0
    """Of them from the prefix cache."""
    frames: float = 0.0
    steps: float = 0.0
    """Of the language model."""
    preemptions: float = 0.0
    freed: float = 0.0
    """Engine slots given up by cancelled pieces, and what that took in all."""
    freed_seconds: float = 0.0
    freed_steps: float = 0.0
    freed_within_two_steps: float = 0.0

    def __sub__(self, before: Counters) -> Counters:
        return Counters(
            *(now - then for now, then in zip(astuple(self), astuple(before), strict=True))
        )

    def prefix_cache(self) -> dict[str, float | None]:
        """Counts and their ratio, None when there was no prompt."""
        rate = self.cached_tokens / self.prompt_tokens if self.prompt_tokens else None
        return {
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "hit_rate": None if rate is None else rounded(rate),
        }

    def slots_freed(self) -> dict[str, float | None]:
        """How many slots cancels freed, and after how many ms and steps on average."""
        count = self.freed
        return {
            "count": count,
            "mean_ms": rounded(1000 * self.freed_seconds / count) if count else None,
            "mean_steps": rounded(self.freed_steps / count) if count else None,
            "share_within_two_steps": (
                rounded(self.freed_within_two_steps / count) if count else None
            ),
        }


def read_metrics(text: str) -> Counters:
    """The counters in a Prometheus text exposition; those missing count as zero."""
    fields = {sample: field for field, sample in _SAMPLES.items()}
    return Counters(
        **{
            fields[name]: sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if (name := f"{sample.name} {sample.labels.get('le', '')}".strip()) in fields
        }
    )


async def scrape(url: str) -> Counters | None:
    """The counters of the gateway at `url`; None when it does not show them."""
    try:
        async with httpx.AsyncClient() as http:
            answer = await http.get(metrics_url(url), timeout=5)
            answer.raise_for_status()
    except httpx.HTTPError:
        return None
    return read_metrics(answer.text)


def metrics_url(url: str) -> str:
    """/metrics of the server that `url` (http, https, ws or wss, with or without path) names."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
    return urlunsplit((scheme, parts.netloc, "/metrics", "", ""))
