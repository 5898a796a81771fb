"""Batch jobs on a disk that is full: SQLite's own limit of pages stands for it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gateway.http.jobstore import JobStore, StoreError

TASK = {"text": "x" * 500}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[JobStore]:
    with closing(JobStore(tmp_path)) as store:
        yield store


def limit(store: JobStore, more: int) -> None:
    """So many pages more than there are now."""
    pages = store._database.execute("pragma page_count").fetchone()[0]
    store._database.execute(f"pragma max_page_count={pages + more}")


def fill(store: JobStore) -> list[str]:
    made: list[str] = []
    with pytest.raises(StoreError, match="full"):
        for number in range(1000):
            store.add(f"job{number}", "me", "audio/wav", [TASK], 0.0)
            made.append(f"job{number}")
    return made


def test_a_job_that_does_not_fit_is_not_half_there(store: JobStore) -> None:
    limit(store, 4)
    made = fill(store)
    assert made
    assert store.job(f"job{len(made)}") is None
    assert store.open_jobs() == len(made)
    limit(store, 100)
    store.add("later", "me", "audio/wav", [TASK], 0.0)
    assert store.job("later") is not None


def test_audio_that_does_not_fit_leaves_its_task_to_be_done(
    store: JobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add("job", "me", "audio/wav", [TASK], 0.0)
    taken = store.take()
    assert taken is not None
    written = Path.write_bytes

    def breaks_off(path: Path, data: bytes) -> int:
        written(path, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(Path, "write_bytes", breaks_off)
        with pytest.raises(StoreError):
            store.done(taken[0], b"audio", 10, 1.0)
    assert not list(store.audio("job", 0).parent.iterdir())
    store.done(taken[0], b"audio", 10, 1.0)
    job = store.job("job")
    assert job is not None
    assert (job.finished, job.tasks[0].status) == (1.0, "done")


def test_a_job_can_be_deleted_from_a_full_disk(store: JobStore) -> None:
    limit(store, 4)
    made = fill(store)
    assert store.delete(made[0])
    assert store.job(made[0]) is None


def test_a_fault_of_the_caller_is_no_full_disk(store: JobStore) -> None:
    store.add("job", "me", "audio/wav", [TASK], 0.0)
    with pytest.raises(sqlite3.IntegrityError):
        store.add("job", "me", "audio/wav", [TASK], 0.0)


def test_what_was_given_out_is_queued_again_and_nothing_more_is_given(store: JobStore) -> None:
    store.add("a", "me", "audio/wav", [TASK, TASK], 1.0)
    assert store.take() is not None
    store.release()
    assert store.take() is None
    job = store.job("a")
    assert job is not None
    assert [task.status for task in job.tasks] == ["queued", "queued"]


def test_a_folder_that_cannot_be_used_is_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "jobs.sqlite").mkdir()
    with pytest.raises(OSError, match=str(tmp_path)):
        JobStore(tmp_path)
