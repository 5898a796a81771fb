"""Prints how the cost of every part compares with what was recorded; fails on nothing but its own
mistakes, since a machine that is shared says nothing certain about speed."""

from __future__ import annotations

import pytest

from bench import smoke


def test_ratios_are_printed_beside_those_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    now, before = smoke.ratios(), smoke.recorded()
    assert now.keys() == before.keys()
    assert all(value > 0 for value in now.values())
    with capsys.disabled():
        print("\n" + "\n".join(smoke.lines(now, before)))


def test_a_part_that_takes_twice_as_long_shows() -> None:
    (line,) = smoke.lines({"codec": 4.0}, {"codec": 2.0})
    assert "2.00 of what was recorded" in line
    (line,) = smoke.lines({"codec": 4.0}, {})
    assert "not recorded" in line
