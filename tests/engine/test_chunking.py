from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import AUDIBLE, SAMPLE_RATE
from engine.chunking import FIRST_PACKET, ChunkPolicy, Listener

QUIET = np.zeros(300, np.float32)
LOUD = np.full(500, 2 * AUDIBLE, np.float32)


class TestPolicy:
    def test_starts_small(self) -> None:
        assert ChunkPolicy(first=5).wanted(0, 0, 0.0) == 5

    def test_takes_every_frame_until_a_packet_can_be_heard(self) -> None:
        assert ChunkPolicy().wanted(3, FIRST_PACKET - 1, 9.0) == 1

    @given(lead=st.floats(-5, 60))
    def test_grows_with_the_lead_within_bounds(self, lead: float) -> None:
        policy = ChunkPolicy()
        wanted = policy.wanted(10, FIRST_PACKET, lead)
        assert policy.smallest <= wanted <= policy.largest
        assert wanted <= policy.wanted(10, FIRST_PACKET, lead + 1)


class TestListener:
    def test_silence_at_the_start_does_not_count(self) -> None:
        listener = Listener()
        listener.hand_out(QUIET, 1.0)
        assert (listener.heard, listener.dry_at, listener.lead(2.0)) == (0, None, 0.0)
        listener.hand_out(np.concatenate((QUIET, LOUD)), 2.0)
        assert listener.heard == LOUD.size

    def test_silence_after_the_first_sound_does(self) -> None:
        listener = Listener()
        listener.hand_out(LOUD, 1.0)
        listener.hand_out(QUIET, 1.1)
        assert listener.heard == LOUD.size + QUIET.size

    def test_runs_dry_when_all_was_played(self) -> None:
        listener = Listener()
        listener.hand_out(LOUD, 1.0)
        assert listener.dry_at == pytest.approx(1.0 + LOUD.size / SAMPLE_RATE)
        assert listener.lead(1.0) == pytest.approx(LOUD.size / SAMPLE_RATE)
        assert listener.lead(2.0) < 0
