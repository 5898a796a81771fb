"""Words come out of a piece's frames in order, once each, and the same however the frames come."""

from __future__ import annotations

import numpy as np
import pytest

from engine.align.piece import SETTLED, PieceAlignment
from engine.align.words import SpokenWord
from engine.api import SAMPLES_PER_FRAME, WordTime
from engine.checkpoints.mini import MiniCheckpoint
from engine.checkpoints.mini_voices import Reference


@pytest.fixture(scope="module")
def checkpoint() -> MiniCheckpoint:
    return MiniCheckpoint.embedded()


@pytest.fixture(scope="module")
def reference(checkpoint: MiniCheckpoint) -> Reference:
    """Real speech: what the English voice speaks after."""
    return checkpoint.reference("heart", "en")


def words(checkpoint: MiniCheckpoint, reference: Reference, lot: int) -> list[list[WordTime]]:
    text = "Of course, I'd be happy to help you with that, so let's begin."
    reading = checkpoint.read(text, "en")
    alignment = checkpoint.alignment_of(text, reading)
    assert alignment is not None
    codes = reference.codes
    return [
        list(alignment.push(codes[at : at + lot], last=at + lot >= len(codes)))
        for at in range(0, len(codes), lot)
    ]


def test_every_word_is_told_once_and_in_order(
    checkpoint: MiniCheckpoint, reference: Reference
) -> None:
    told = [word for lot in words(checkpoint, reference, 24) for word in lot]
    assert len(told) == 13
    edges = [sample for word in told for sample in (word.start_sample, word.end_sample)]
    assert edges == sorted(edges)
    assert edges[-1] <= len(reference.codes) * SAMPLES_PER_FRAME
    # Nobody says a word of this in less than 40 ms or more than 700.
    assert all(960 < word.end_sample - word.start_sample < 16_800 for word in told)


def test_words_are_told_soon_after_they_are_said(
    checkpoint: MiniCheckpoint, reference: Reference
) -> None:
    lots = words(checkpoint, reference, 24)
    for number, lot in enumerate(lots[:-1]):
        for word in lot:
            assert word.end_sample <= (24 * (number + 1) - SETTLED) * SAMPLES_PER_FRAME
    first = sum(map(len, lots[: len(lots) // 2]))
    assert 4 <= first <= 8


@pytest.mark.parametrize("lot", [1, 7, 500])
def test_times_hardly_depend_on_how_frames_come(
    checkpoint: MiniCheckpoint, reference: Reference, lot: int
) -> None:
    expected = [w for told in words(checkpoint, reference, 500) for w in told]
    found = [w for told in words(checkpoint, reference, lot) for w in told]
    for one, other in zip(found, expected, strict=True):
        assert (one.start, one.end) == (other.start, other.end)
        assert abs(one.start_sample - other.start_sample) <= 2 * SAMPLES_PER_FRAME


def test_a_piece_without_frames_tells_nothing(checkpoint: MiniCheckpoint) -> None:
    alignment = checkpoint.alignment_of("Hello.", checkpoint.read("Hello.", "en"))
    assert alignment is not None
    assert alignment.push(np.zeros((0, 4), np.int16), last=True) == ()


def test_frames_that_say_something_else_still_give_every_word_a_place(
    checkpoint: MiniCheckpoint, reference: Reference
) -> None:
    network = checkpoint.aligner
    assert network is not None
    alignment = PieceAlignment(network, [50, 51, 52], [SpokenWord(0, 1, 0, 3)], [0, 2])
    (word,) = alignment.push(reference.codes[:5], last=True)
    assert 0 <= word.start_sample <= word.end_sample <= 5 * SAMPLES_PER_FRAME
