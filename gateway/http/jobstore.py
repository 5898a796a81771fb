"""Batch jobs on disk: what was asked for and what became of it in SQLite, audio beside it."""

from __future__ import annotations

import json
import shutil
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

_SCHEMA = """
create table if not exists jobs (
    id text primary key, owner text not null, media_type text not null,
    created real not null, finished real
) without rowid;
create table if not exists tasks (
    job text not null references jobs (id) on delete cascade, number integer not null,
    request text not null, status text not null default 'queued',
    error text, bytes integer, ms integer,
    primary key (job, number)
) without rowid;
create index if not exists open_tasks on tasks (status) where status = 'queued';
"""
_OPEN = ("queued", "running")
_AGAIN = "update tasks set status='queued' where status='running'"


class StoreError(Exception):
    """The disk takes nothing more, or does not answer. Nothing was changed."""


@contextmanager
def _stored() -> Iterator[None]:
    """Raises `StoreError` for what the disk is to blame for."""
    try:
        yield
    except (sqlite3.OperationalError, OSError) as failure:
        raise StoreError(f"{type(failure).__name__}: {failure}") from failure


class Task(NamedTuple):
    """One text of a job. `status`: queued, running, done or failed."""

    job: str
    number: int
    request: dict[str, Any]
    status: str
    error: dict[str, Any] | None
    bytes: int | None
    ms: int | None


class Job(NamedTuple):
    """Times are seconds since 1970; `finished` is None while a task is open."""

    id: str
    owner: str
    media_type: str
    created: float
    finished: float | None
    tasks: list[Task]


class JobStore:
    """Every method may be called from any thread. What it returns from is on disk; those that write
    raise `StoreError` when it is full."""

    def __init__(self, folder: Path) -> None:
        """Raises `OSError` when the folder cannot be used. Tasks that were running when the last
        process ended are queued again."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._lock = threading.Lock()
        self._released = False
        try:
            self._database = sqlite3.connect(folder / "jobs.sqlite", check_same_thread=False)
            pragmas = "pragma journal_mode=wal; pragma foreign_keys=on;"
            self._database.executescript(pragmas + _SCHEMA)
            with self._database:
                self._database.execute(_AGAIN)
        except sqlite3.Error as failure:
            raise OSError(f"{folder}: {failure}") from failure

    def release(self) -> None:
        """Give out no more tasks; those that were given out are queued again."""
        with _stored(), self._lock, self._database as database:
            self._released = True
            database.execute(_AGAIN)

    def close(self) -> None:
        with self._lock:
            self._database.close()

    def add(
        self, id: str, owner: str, media_type: str, tasks: Sequence[dict[str, Any]], now: float
    ) -> None:
        with _stored(), self._lock, self._database as database:
            database.execute(
                "insert into jobs values (?, ?, ?, ?, null)", (id, owner, media_type, now)
            )
            database.executemany(
                "insert into tasks (job, number, request) values (?, ?, ?)",
                [(id, number, json.dumps(task)) for number, task in enumerate(tasks)],
            )

    def job(self, id: str) -> Job | None:
        with self._lock, closing(self._database.cursor()) as cursor:
            row = cursor.execute("select * from jobs where id = ?", (id,)).fetchone()
            if row is None:
                return None
            rows = cursor.execute(f"{_TASKS} where job = ? order by number", (id,)).fetchall()
        id, owner, media_type, created, finished = row
        return Job(id, owner, media_type, created, finished, [_task(each) for each in rows])

    def task(self, job: str, number: int) -> Task | None:
        with self._lock:
            row = self._database.execute(
                f"{_TASKS} where job = ? and number = ?", (job, number)
            ).fetchone()
        return None if row is None else _task(row)

    def any_jobs(self) -> bool:
        with self._lock:
            return self._database.execute("select 1 from jobs limit 1").fetchone() is not None

    def open_jobs(self) -> int:
        with self._lock:
            query = "select count(*) from jobs where finished is null"
            return int(self._database.execute(query).fetchone()[0])

    def take(self) -> tuple[Task, str, str] | None:
        """The oldest queued task, now running, with its job's owner and media type."""
        with _stored(), self._lock, self._database as database:
            row = database.execute(
                "select job, number, owner, media_type from tasks join jobs on jobs.id = job "
                "where status = 'queued' order by created, job, number limit 1"
            ).fetchone()
            if row is None or self._released:
                return None
            job, number, owner, media_type = row
            database.execute(
                "update tasks set status='running' where job = ? and number = ?", (job, number)
            )
            task = _task(
                database.execute(f"{_TASKS} where job = ? and number = ?", (job, number)).fetchone()
            )
        return task, owner, media_type

    def put_back(self, task: Task) -> None:
        """Nothing came of it yet through no fault of its own."""
        self._settle(task, "queued")

    def done(self, task: Task, audio: bytes, ms: int, now: float) -> None:
        path = self.audio(task.job, task.number)
        part = path.with_suffix(".part")
        with _stored():
            path.parent.mkdir(exist_ok=True)
            try:
                part.write_bytes(audio)
                part.replace(path)
            except OSError:
                # What fits of it would keep the disk full.
                part.unlink(missing_ok=True)
                raise
        if not self._settle(task, "done", now, size=len(audio), ms=ms):
            # It was deleted meanwhile.
            shutil.rmtree(path.parent, ignore_errors=True)

    def failed(self, task: Task, error: dict[str, Any], now: float) -> None:
        self._settle(task, "failed", now, error=json.dumps(error))

    def _settle(
        self,
        task: Task,
        status: str,
        now: float | None = None,
        *,
        error: str | None = None,
        size: int | None = None,
        ms: int | None = None,
    ) -> bool:
        """Whether there is such a task. `now`: it is over."""
        with _stored(), self._lock, self._database as database:
            found = database.execute(
                "update tasks set status=?, error=?, bytes=?, ms=? where job=? and number=?",
                (status, error, size, ms, task.job, task.number),
            )
            if now is not None:
                database.execute(
                    "update jobs set finished = ? where id = ? and not exists "
                    "(select 1 from tasks where job = id and status in (?, ?))",
                    (now, task.job, *_OPEN),
                )
        return found.rowcount > 0

    def audio(self, job: str, number: int) -> Path:
        """Where the audio of a task is, once it is done."""
        return self._folder / job / f"{number}.audio"

    def delete(self, id: str) -> bool:
        """Whether there was such a job."""
        try:
            gone = self._delete(id)
        except StoreError:
            # Without its audio there is room to write that it is gone.
            shutil.rmtree(self._folder / id, ignore_errors=True)
            gone = self._delete(id)
        if gone:
            shutil.rmtree(self._folder / id, ignore_errors=True)
        return gone

    def _delete(self, id: str) -> bool:
        with _stored(), self._lock, self._database as database:
            return database.execute("delete from jobs where id = ?", (id,)).rowcount > 0

    def expire(self, before: float) -> list[str]:
        """Delete the jobs that finished before a time."""
        with self._lock:
            query = "select id from jobs where finished < ?"
            old = [str(row[0]) for row in self._database.execute(query, (before,))]
        for id in old:
            self.delete(id)
        return old


_TASKS = "select job, number, request, status, error, bytes, ms from tasks"


def _task(row: tuple[Any, ...]) -> Task:
    job, number, request, status, error, size, ms = row
    return Task(
        job, number, json.loads(request), status, json.loads(error) if error else None, size, ms
    )
