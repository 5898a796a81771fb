"""Where speech begins in what the voice learns from."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from training.onset import AFTER_SAMPLES, AUDIBLE, BEFORE_SAMPLES, trim


def spoken(before: int) -> npt.NDArray[np.float32]:
    return np.concatenate([np.full(before, 0.001), np.full(12_000, 0.5), np.zeros(9000)]).astype(
        np.float32
    )


@pytest.mark.parametrize("before", [0, 100, BEFORE_SAMPLES, 9000])
def test_speech_begins_at_the_same_sample_whatever_silence_came_before(before: int) -> None:
    trimmed = trim(spoken(before))
    assert trimmed is not None
    kept = trimmed.wave
    assert trimmed.before == before - BEFORE_SAMPLES
    assert int(np.argmax(np.abs(kept) > AUDIBLE)) == BEFORE_SAMPLES
    assert abs(len(kept) - BEFORE_SAMPLES - 12_000 - AFTER_SAMPLES) <= 1
    assert kept[0] == 0.0


def test_the_wave_given_is_not_changed() -> None:
    wave = spoken(9000)
    trim(wave)
    np.testing.assert_array_equal(wave, spoken(9000))


def test_what_cannot_be_learned_from_is_refused() -> None:
    assert trim(np.zeros(24_000, np.float32)) is None
    assert trim(np.full(24_000, np.nan, np.float32)) is None
    assert trim(np.full(16 * 24_000, 0.5, np.float32)) is None
