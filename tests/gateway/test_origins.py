from __future__ import annotations

import pytest

from gateway.origins import may_connect


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        (None, "voice.example"),
        ("https://voice.example", "voice.example"),
        ("https://voice.example", "voice.example:443"),
        ("http://voice.example:80", "voice.example"),
        ("http://VOICE.example:8080", "voice.example:8080"),
        ("http://[::1]:8080", "[::1]:8080"),
    ],
)
def test_no_browser_and_the_same_origin(origin: str | None, host: str) -> None:
    assert may_connect(origin, host, [])


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("https://evil.example", "voice.example"),
        ("https://voice.example:8443", "voice.example"),
        ("http://voice.example", "voice.example:8080"),
        ("https://voice.example.evil.example", "voice.example"),
        ("https://evilvoice.example", "voice.example"),
        ("null", "voice.example"),
        ("null", "null"),
        ("", ""),
        ("https://voice.example:port", "voice.example"),
        ("https://voice.example", "voice.example:x"),
        ("https://[", "voice.example"),
        ("file://", "voice.example"),
        ("https://voice.example", None),
    ],
)
def test_others(origin: str, host: str | None) -> None:
    assert not may_connect(origin, host, [])
    assert not may_connect(origin, host, ["https://good.example", ""]) or origin == ""
    assert may_connect(origin, host, ["*"])


def test_listed_origins_count_whole() -> None:
    allowed = ["https://good.example/", "null"]
    assert may_connect("https://GOOD.example", "voice.example", allowed)
    assert may_connect("null", "voice.example", allowed)
    assert not may_connect("http://good.example", "voice.example", allowed)
    assert not may_connect("https://good.example:8443", "voice.example", allowed)
