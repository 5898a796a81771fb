"""Which writing the voices say, as docs/protocol.md has it under `caption`."""

from __future__ import annotations

import pytest

from engine.frontend.characters import plain


@pytest.mark.parametrize(
    "word", ["שלום", "Привет", "こんにちは", "안녕", "สวัสดี", "नमस्ते", "λόγος", "αβ"]
)
def test_words_in_other_scripts_are_passed_over(word: str) -> None:
    assert plain(f"Hello {word} world.") == "Hello world."


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("An α particle", "An alpha particle"),
        ("Ω and ά", "omega and alpha"),
        ("٣ or ३ of them", "3 or 3 of them"),
        ("Łódź, 你好", "Łódź, 你好"),
    ],
)
def test_what_is_said(written: str, said: str) -> None:
    assert plain(written) == said
