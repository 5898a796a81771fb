"""The targets of fuzz/ with what hypothesis thinks of, and with what once found something."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

FUZZ = Path(__file__).parents[2] / "fuzz"
sys.path.insert(0, str(FUZZ))

from targets import TARGETS  # noqa: E402

REGRESSIONS = sorted((FUZZ / "regressions").glob("*"))


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=60)
@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_any_bytes(name: str, data: bytes) -> None:
    TARGETS[name](data)


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda path: path.name)
def test_what_once_found_something(path: Path) -> None:
    TARGETS[path.name.partition("-")[0]](path.read_bytes())
