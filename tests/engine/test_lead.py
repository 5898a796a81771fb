from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import DRY, OFFLINE
from engine.lead import OFFLINE_SHARE, POOR_SECONDS, RICH_SECONDS, Leads, Standing

FRAMES_A_SECOND = 46.875


def after(frames: int, seconds: float, priority: int = DRY) -> tuple[Leads, Standing]:
    """A request whose first frame came at 100 s and which has `frames` frames `seconds` later."""
    leads = Leads()
    leads.resting([Standing("a", priority, 1)], arriving=False, now=100.0)
    return leads, Standing("a", priority, frames)


def test_a_request_without_frames_has_no_lead() -> None:
    assert Leads().lead(Standing("a", DRY, 0), 5.0) == 0.0


@given(frames=st.integers(1, 1000), seconds=st.floats(0, 20))
def test_the_lead_is_what_was_made_less_the_time_since_the_first_frame(
    frames: int, seconds: float
) -> None:
    leads, standing = after(frames, seconds)
    expected = frames / FRAMES_A_SECOND - seconds
    assert leads.lead(standing, 100.0 + seconds) == pytest.approx(expected, abs=1e-6)


def test_what_the_listener_had_in_hand_before_counts() -> None:
    leads, standing = after(47, 1.0, priority=103_000)
    assert leads.lead(standing, 101.0) == pytest.approx(103.0 + 47 / FRAMES_A_SECOND - 101.0)


def rich(name: str = "rich", priority: int = DRY) -> Standing:
    return Standing(name, priority, round((RICH_SECONDS + 1.0) * FRAMES_A_SECOND))


class TestResting:
    def test_the_rich_rest_while_somebody_is_in_a_hurry(self) -> None:
        leads = Leads()
        assert leads.resting([rich(), Standing("new", DRY, 0)], False, 10.0) == {"rich"}

    def test_nobody_rests_when_nobody_hurries(self) -> None:
        enough = round((POOR_SECONDS + 0.2) * FRAMES_A_SECOND)
        assert Leads().resting([rich(), Standing("b", DRY, enough)], False, 10.0) == set()

    def test_the_rich_rest_for_who_is_about_to_be_let_in(self) -> None:
        assert Leads().resting([rich()], True, 10.0) == {"rich"}

    def test_they_work_again_before_they_are_poor(self) -> None:
        leads, new = Leads(), Standing("new", DRY, 0)
        assert leads.resting([rich(), new], False, 10.0) == {"rich"}
        assert leads.resting([rich(), new], False, 11.1) == set()

    def test_offline_work_gives_way_without_starving(self) -> None:
        leads = Leads()
        standings = [Standing("file", OFFLINE, 5), Standing("new", DRY, 0)]
        rested = [bool(leads.resting(standings, False, 10.0)) for _ in range(4 * OFFLINE_SHARE)]
        assert rested.count(False) == 4

    def test_offline_work_alone_does_not_rest(self) -> None:
        leads = Leads()
        files = [Standing(name, OFFLINE, 5) for name in "ab"]
        assert all(not leads.resting(files, False, 10.0) for _ in range(8))

    def test_a_name_used_again_starts_anew(self) -> None:
        leads = Leads()
        leads.resting([Standing("a", DRY, 1)], False, 10.0)
        leads.resting([], False, 11.0)
        assert leads.lead(Standing("a", DRY, 47), 50.0) == pytest.approx(47 / FRAMES_A_SECOND)
