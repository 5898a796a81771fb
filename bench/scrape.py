"""What a gateway says of itself on /metrics, as far as a benchmark wants it."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

import httpx
from prometheus_client.parser import text_string_to_metric_families

from bench.stats import rounded

_PROMPT, _CACHED = "voxgate_prompt_tokens_total", "voxgate_prompt_tokens_cached_total"


@dataclass(frozen=True, slots=True)
class PrefixCache:
    """Prompt tokens of all pieces so far, and how many of them came from the prefix cache."""

    prompt_tokens: float
    cached_tokens: float

    def __sub__(self, before: PrefixCache) -> PrefixCache:
        return PrefixCache(
            self.prompt_tokens - before.prompt_tokens, self.cached_tokens - before.cached_tokens
        )

    def as_dict(self) -> dict[str, float | None]:
        """Counts and their ratio, None when there was no prompt."""
        rate = self.cached_tokens / self.prompt_tokens if self.prompt_tokens else None
        return {
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "hit_rate": None if rate is None else rounded(rate),
        }


def read_metrics(text: str) -> PrefixCache:
    """The counters in a Prometheus text exposition; those missing count as zero."""
    values = {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name in (_PROMPT, _CACHED)
    }
    return PrefixCache(values.get(_PROMPT, 0.0), values.get(_CACHED, 0.0))


async def scrape(url: str) -> PrefixCache | None:
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
