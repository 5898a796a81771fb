from __future__ import annotations

import numpy as np
import pytest
from fake_engine import tone
from hypothesis import given
from hypothesis import strategies as st

from engine.api import AUDIBLE, Pcm
from gateway.trimming import HELD, LEAD_IN, Trimmer


def silence(samples: int) -> Pcm:
    return np.zeros(samples, np.float32)


def cut(pcm: Pcm, sizes: list[int]) -> list[Pcm]:
    """`pcm` in chunks of these sizes, again and again."""
    chunks, at, index = [], 0, 0
    while at < pcm.size:
        size = sizes[index % len(sizes)]
        chunks.append(pcm[at : at + size])
        at, index = at + size, index + 1
    return chunks


def trim(chunks: list[Pcm]) -> tuple[Pcm, Pcm, Trimmer]:
    trimmer = Trimmer()
    kept = [trimmer.feed(chunk) for chunk in chunks]
    return np.concatenate([silence(0), *kept]), trimmer.finish(), trimmer


def test_leading_silence_is_cut_to_the_lead_in() -> None:
    kept, held, trimmer = trim([silence(5000), tone(1000)])
    assert kept.size == LEAD_IN + 1000
    assert held.size == 0
    assert trimmer.onset == LEAD_IN


def test_an_onset_sooner_than_the_lead_in_keeps_what_there_is() -> None:
    kept, _, trimmer = trim([silence(100), tone(1000)])
    assert kept.size == 1100
    assert trimmer.onset == 100


def test_trailing_silence_is_held_back() -> None:
    kept, held, trimmer = trim([tone(1000), silence(2000)])
    assert (kept.size, held.size, trimmer.trailing) == (1000, 2000, 0)


def test_a_long_silence_passes_but_for_what_is_held() -> None:
    kept, held, trimmer = trim([tone(1000), silence(HELD + 700)])
    assert (kept.size, held.size, trimmer.trailing) == (1700, HELD, 700)


def test_a_pause_within_a_piece_is_kept() -> None:
    audio = np.concatenate((tone(1000), silence(3000), tone(500)))
    kept, held, trimmer = trim(cut(audio, [400]))
    assert np.array_equal(kept, audio)
    assert (held.size, trimmer.trailing) == (0, 0)


@pytest.mark.parametrize("level", [0.0, AUDIBLE * 0.9])
def test_a_piece_without_sound_gives_nothing(level: float) -> None:
    kept, held, trimmer = trim([np.full(9000, level, np.float32)])
    assert (kept.size, held.size, trimmer.started) == (0, 0, False)


PIECES = st.lists(st.tuples(st.booleans(), st.integers(1, 9000)), max_size=6)
SIZES = st.lists(st.integers(1, 3000), min_size=1, max_size=5)


@given(PIECES, SIZES, SIZES)
def test_chunks_do_not_matter(
    parts: list[tuple[bool, int]], left: list[int], right: list[int]
) -> None:
    audio = np.concatenate(
        [silence(0), *(tone(size) if loud else silence(size) for loud, size in parts)]
    )
    ours, theirs = trim(cut(audio, left)), trim(cut(audio, right))
    assert np.array_equal(ours[0], theirs[0])
    assert np.array_equal(ours[1], theirs[1])
    assert (ours[2].trailing, ours[2].onset) == (theirs[2].trailing, theirs[2].onset)
    if np.any(np.abs(audio) > AUDIBLE):
        loud = np.flatnonzero(np.abs(audio) > AUDIBLE)
        whole = np.concatenate(ours[:2])
        assert np.array_equal(
            whole[ours[2].onset :][: loud[-1] - loud[0] + 1], audio[loud[0] : loud[-1] + 1]
        )
