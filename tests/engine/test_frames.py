"""The frame store: ids, ages, what survives whom."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api import SpeechError
from engine.frames import FRAME_BASE, SPEAKER_BASE, STATIC_BASE, FrameStore, StoreShape

SHAPE = StoreShape(
    rows=64, codebooks=4, hidden_size=8, static_rows=10, speaker_rows=3, hidden_rows=16
)


@pytest.fixture
def store() -> Iterator[FrameStore]:
    store = FrameStore.create(SHAPE)
    yield store
    store.close()


def write(store: FrameStore, count: int) -> list[int]:
    """What the engine process does: reserve, write, return ids. Codes are the serial mod 600."""
    first = store.reserve(count)
    serials = np.arange(first, first + count)
    store.codes[serials % store.shape.rows] = (serials % 600)[:, None]
    if store.shape.hidden_rows:
        store.hidden[serials % store.shape.hidden_rows] = (serials % 600)[:, None]
    return list(FRAME_BASE + serials % store.shape.span)


def test_a_second_process_sees_the_same_rows(store: FrameStore) -> None:
    write(store, 5)
    store.register_frames(np.full((2, 4), 7, np.int16))
    store.register_speaker(np.arange(8, dtype=np.float32))
    script = """
        import sys
        from pathlib import Path
        from engine.frames import FrameStore
        store = FrameStore.attach(Path(sys.argv[1]))
        assert store.serial == 5 and store.shape.rows == 64
        assert store.static[1].tolist() == [7] * 4 and store.static_used == 2
        assert store.speakers[0].tolist() == list(range(8)) and store.speakers_used == 1
        store.reserve(1)
        store.codes[5] = 42
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script), store.path], check=True)
    codes, _ = store.read([FRAME_BASE + 5])
    assert codes.tolist() == [[42] * 4]


def test_registered_rows_have_their_own_id_ranges_and_bump_the_version(store: FrameStore) -> None:
    before = store.version
    assert store.register_frames(np.zeros((3, 4), np.int16)) == [STATIC_BASE + i for i in range(3)]
    assert store.register_frames(np.zeros((2, 4), np.int16)) == [STATIC_BASE + 3, STATIC_BASE + 4]
    assert store.register_speaker(np.zeros(8, np.float32)) == SPEAKER_BASE
    assert store.register_speaker(np.zeros(8, np.float32)) == SPEAKER_BASE + 1
    assert store.version == before + 4


def test_registering_what_does_not_fit_changes_nothing(store: FrameStore) -> None:
    store.register_frames(np.ones((9, 4), np.int16))
    with pytest.raises(SpeechError) as full:
        store.register_frames(np.zeros((2, 4), np.int16))
    assert full.value.code == "engine_full"
    assert store.static_used == 9
    with pytest.raises(ValueError, match=r"\(n, 4\)"):
        store.register_frames(np.zeros((2, 3), np.int16))
    for _ in range(3):
        store.register_speaker(np.zeros(8, np.float32))
    with pytest.raises(SpeechError):
        store.register_speaker(np.zeros(8, np.float32))
    with pytest.raises(ValueError, match="8"):
        store.register_speaker(np.zeros(7, np.float32))


def test_a_speaker_takes_the_row_of_another_under_a_new_id(store: FrameStore) -> None:
    first, second = (store.register_speaker(np.full(8, fill, np.float32)) for fill in (1, 2))
    version, epoch = store.version, store.epoch
    fresh = store.replace_speaker(first, np.full(8, 3, np.float32))
    rows = store.shape.speaker_rows
    assert fresh not in (first, second)
    assert SPEAKER_BASE <= fresh < STATIC_BASE
    assert (fresh - first) % rows == 0
    assert store.speakers[:2, 0].tolist() == [3, 2]
    assert store.version == version + 1
    ids = {first, fresh}
    while store.epoch == epoch:
        fresh = store.replace_speaker(fresh, np.full(8, 4, np.float32))
        assert store.epoch != epoch or fresh not in ids
        ids.add(fresh)
    # Ids repeat from here on, under another salt.
    assert fresh == first
    for wrong in (SPEAKER_BASE - 1, STATIC_BASE, SPEAKER_BASE + 2):
        with pytest.raises(ValueError, match="no speaker"):
            store.replace_speaker(wrong, np.zeros(8, np.float32))
    with pytest.raises(ValueError, match="8"):
        store.replace_speaker(fresh, np.zeros(7, np.float32))


def test_read_returns_codes_and_hidden_in_the_order_asked(store: FrameStore) -> None:
    ids = write(store, 10)
    codes, hidden = store.read([ids[7], ids[2]])
    assert codes[:, 0].tolist() == [7, 2]
    assert hidden is not None
    assert hidden[:, 0].tolist() == [7, 2]
    empty, _ = store.read([])
    assert empty.shape == (0, 4)


def test_a_frame_is_readable_until_the_ring_comes_round() -> None:
    store = FrameStore.create(StoreShape(rows=64, codebooks=4, hidden_size=8))
    first = write(store, 1)[0]
    write(store, 63)
    assert store.read([first])[0].tolist() == [[0] * 4]
    assert store.oldest([5, first, STATIC_BASE]) == (first, 64)
    write(store, 1)
    with pytest.raises(SpeechError) as gone:
        store.read([first])
    assert gone.value.code == "frame_ring_overrun"
    assert store.oldest([first])[1] == 65
    store.close()


def test_hidden_states_expire_with_their_own_shorter_ring(store: FrameStore) -> None:
    first = write(store, 1)[0]
    write(store, 15)
    store.read([first])
    write(store, 1)
    with pytest.raises(SpeechError):
        store.read([first])


@settings(deadline=None)
@given(start=st.integers(0, 2**40), count=st.integers(1, 64), probe=st.integers(0, 63))
def test_ids_stay_right_over_the_wrap_of_int32(start: int, count: int, probe: int) -> None:
    shape = StoreShape(rows=64, codebooks=2, hidden_size=1, static_rows=1, speaker_rows=1)
    store = FrameStore.create(shape)
    try:
        store.reserve(start)
        ids = write(store, count)
        assert all(FRAME_BASE <= i < 2**31 for i in ids)
        chosen = ids[probe % count]
        codes, _ = store.read([chosen])
        assert codes[0, 0] == (start + probe % count) % 600
        assert store.oldest(ids) == (ids[0], count)
    finally:
        store.close()


def test_an_epoch_never_holds_two_frames_with_one_id(store: FrameStore) -> None:
    span = store.shape.span
    epochs = []
    for _ in range(6):
        epochs.append(store.epoch)
        store.reserve(span // 4)
    # Ids repeat after `span` serials; by then the epoch has changed twice, so neither a request
    # that began just before a change nor its context can meet its id's next owner.
    assert epochs == [0, 0, 1, 1, 2, 2]


def test_a_closed_store_is_gone() -> None:
    store = FrameStore.create(SHAPE)
    other = FrameStore.attach(store.path)
    store.register_frames(np.full((2, 4), 7, np.int16))
    store.close()
    with pytest.raises(OSError, match=str(store.path)):
        FrameStore.attach(store.path)
    # Who is attached may finish what it was doing.
    assert other.static[1].tolist() == [7] * 4
    other.close()


def test_a_killed_creator_leaves_nothing() -> None:
    script = """
        import time
        from engine.frames import FrameStore, StoreShape
        store = FrameStore.create(StoreShape(rows=8, codebooks=4, hidden_size=8))
        print(store.path, flush=True)
        time.sleep(600)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True
    ) as creator:
        assert creator.stdout is not None
        path = Path(creator.stdout.readline().strip())
        FrameStore.attach(path).close()
        creator.kill()
    with pytest.raises(OSError, match=str(path)):
        FrameStore.attach(path)


def test_attaching_to_something_else_fails(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"\0" * 8192)
    with pytest.raises(OSError, match="not a frame store"):
        FrameStore.attach(other)


@pytest.mark.parametrize(
    "wrong",
    [{"rows": 0}, {"rows": 1 << 27}, {"hidden_rows": 24}, {"hidden_bytes": 8},
     {"static_rows": 600_000}, {"speaker_rows": 200_000}],
)  # fmt: skip
def test_impossible_shapes_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must"):
        StoreShape(**{"rows": 64, "codebooks": 4, "hidden_size": 8} | wrong)
