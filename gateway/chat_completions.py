"""Streamed answers of an OpenAI-compatible chat endpoint."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

import httpx
import orjson

_TIMEOUT = httpx.Timeout(10.0, read=300.0)


class ChatError(Exception):
    """The endpoint refused, or could not be reached."""


async def stream_chat(
    base_url: str, model: str, messages: Sequence[dict[str, str]], api_key: str = ""
) -> AsyncGenerator[str, None]:
    """The answer, token by token. Raises `ChatError`."""
    url = f"{base_url.rstrip('/')}/chat/completions"
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    body = {"model": model, "messages": list(messages), "stream": True}
    try:
        async with (
            httpx.AsyncClient(timeout=_TIMEOUT) as http,
            http.stream("POST", url, json=body, headers=headers) as answer,
        ):
            if answer.status_code != httpx.codes.OK:
                raise ChatError(f"{url}: {answer.status_code} {_reason(await answer.aread())}")
            async for line in answer.aiter_lines():
                data = line.removeprefix("data:").strip()
                if not line.startswith("data:") or data == "[DONE]":
                    continue
                if token := _token(data):
                    yield token
    except httpx.HTTPError as failure:
        raise ChatError(f"{url}: {failure or type(failure).__name__}") from failure


def _token(data: str) -> str:
    event = orjson.loads(data)
    if "error" in event:
        raise ChatError(_reason(data.encode()))
    choices = event.get("choices") or [{}]
    return str(choices[0].get("delta", {}).get("content") or "")


def _reason(body: bytes) -> str:
    try:
        error = orjson.loads(body)["error"]
        return str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace")[:200]
