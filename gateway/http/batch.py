"""`/batch_tts`: many texts at once, as a job that is asked about later."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncGenerator
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse

from gateway.door import Door
from gateway.http.health import json_response
from gateway.http.jobs import BatchTask, Jobs
from gateway.http.jobstore import Job, StoreError, Task
from gateway.http.native import error_reply
from gateway.http.replies import read_body, server_sent
from gateway.http.sound import NATIVE
from gateway.link import GatewayError

PATH = "/batch_tts"
_KEY = "key:"
"""What the owners of jobs begin with that are keys rather than addresses."""
_BODY_BYTES = 16 * 2**20
_MEDIA_TYPES = {sound.name: media_type for media_type, sound in NATIVE.items()}


class BatchBody(BaseModel):
    """The body of `POST /batch_tts`."""

    model_config = ConfigDict(strict=True, extra="forbid")

    tasks: list[BatchTask] = Field(min_length=1)
    format: Literal["wav", "ogg", "mp3", "flac", "aac", "pcm"] = "wav"


class Batch:
    """The routes."""

    def __init__(self, door: Door, jobs: Jobs) -> None:
        self._door = door
        self._jobs = jobs

    async def create(self, request: Request) -> Response:
        """`POST /batch_tts`: 202 and the job at once."""
        settings, store = self._door.settings, self._jobs.store
        try:
            self._door.let_in(request)
            body = await read_body(request, BatchBody, _BODY_BYTES)
            if len(body.tasks) > settings.max_job_tasks:
                raise GatewayError(
                    "text_too_long",
                    f"There are {len(body.tasks)} tasks; a job takes {settings.max_job_tasks}.",
                    field="tasks",
                )
            if await asyncio.to_thread(store.open_jobs) >= settings.max_jobs:
                raise GatewayError(
                    "too_many_jobs",
                    f"{settings.max_jobs} jobs are open.",
                    settings.retry_after_ms,
                )
        except GatewayError as failure:
            return error_reply(failure)
        id = secrets.token_urlsafe(12)
        tasks = [task.model_dump(exclude_none=True) for task in body.tasks]
        media_type, owner = _MEDIA_TYPES[body.format], self._door.who(request)
        try:
            await asyncio.to_thread(store.add, id, owner, media_type, tasks, time.time())
        except StoreError:
            return error_reply(_no_room(settings.retry_after_ms))
        self._jobs.added()
        job = await asyncio.to_thread(store.job, id)
        assert job is not None
        return json_response(202, self._status(job), {"location": f"{PATH}/{id}"})

    async def status(self, request: Request) -> Response:
        """`GET /batch_tts/{job}`; server-sent events when `Accept` asks for them."""
        if "text/event-stream" in request.headers.get("accept", ""):
            return await self.events(request)
        job = await self._find(request)
        return _unknown() if job is None else json_response(200, self._status(job))

    async def events(self, request: Request) -> Response:
        """`GET /batch_tts/{job}/events`: `status` at once, `task` for each that changes, `done`."""
        job = await self._find(request)
        if job is None:
            return _unknown()
        return StreamingResponse(
            self._follow(job.id),
            media_type="text/event-stream",
            headers={"cache-control": "no-store", "x-accel-buffering": "no"},
        )

    async def _follow(self, id: str) -> AsyncGenerator[bytes, None]:
        known: list[Task] | None = None
        async with contextlib.aclosing(self._jobs.changes(id)) as changes:
            async for _ in changes:
                job = await asyncio.to_thread(self._jobs.store.job, id)
                if job is None:
                    yield server_sent({"job_id": id, "status": "deleted"}, "done")
                    return
                if known is None:
                    yield server_sent(self._status(job), "status")
                else:
                    for before, task in zip(known, job.tasks, strict=True):
                        if before.status != task.status:
                            yield server_sent(_task_status(task), "task")
                known = job.tasks
                if job.finished is not None:
                    yield server_sent(self._status(job), "done")
                    return

    async def audio(self, request: Request) -> Response:
        """`GET /batch_tts/{job}/tasks/{number}/audio`."""
        job = await self._find(request)
        if job is None:
            return _unknown()
        text = request.path_params["number"]
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else -1
        if not 0 <= number < len(job.tasks):
            return error_reply(GatewayError("unknown_task", "The job has no such task."))
        task = job.tasks[number]
        if task.status != "done":
            message = f"The task is {task.status}."
            if task.error:
                message += f" {task.error['code']}: {task.error['message']}"
            return error_reply(GatewayError("not_ready", message))
        return FileResponse(self._jobs.store.audio(job.id, number), media_type=job.media_type)

    async def delete(self, request: Request) -> Response:
        """`DELETE /batch_tts/{job}`: stop it and forget it."""
        job = await self._find(request)
        try:
            if job is None or not self._jobs.delete(job.id):
                return _unknown()
        except StoreError:
            return error_reply(_no_room(self._door.settings.retry_after_ms))
        return Response(status_code=204)

    async def _find(self, request: Request) -> Job | None:
        """The job asked for; where there are keys, only with the one that made it."""
        job = await asyncio.to_thread(self._jobs.store.job, request.path_params["job"])
        if job is None or (job.owner.startswith(_KEY) and job.owner != self._door.who(request)):
            return None
        return job

    def _status(self, job: Job) -> dict[str, Any]:
        states = [task.status for task in job.tasks]
        done, failed = states.count("done"), states.count("failed")
        if job.finished is None:
            status = "running" if done or failed or "running" in states else "queued"
        elif not failed:
            status = "done"
        else:
            status = "partial" if done else "failed"
        keep = self._door.settings.jobs_keep_seconds
        return {
            "job_id": job.id,
            "status": status,
            "created_at": job.created,
            "finished_at": job.finished,
            "expires_at": None if job.finished is None else job.finished + keep,
            "progress": {
                "total": len(states),
                "done": done,
                "failed": failed,
                "share": (done + failed) / len(states),
            },
            "tasks": [_task_status(task) for task in job.tasks],
        }


def _task_status(task: Task) -> dict[str, Any]:
    status: dict[str, Any] = {
        "task": task.number,
        "id": task.request.get("id"),
        "status": task.status,
        "error": task.error,
        "audio": None,
    }
    if task.status == "done":
        url = f"{PATH}/{task.job}/tasks/{task.number}/audio"
        status["audio"] = {"url": url, "bytes": task.bytes, "ms": task.ms}
    return status


def _no_room(retry_after_ms: int) -> GatewayError:
    return GatewayError(
        "storage_full",
        "The disk of the jobs is full. Delete jobs that are done, or come back later.",
        retry_after_ms,
    )


def _unknown() -> Response:
    return error_reply(GatewayError("unknown_job", "No job has this id, or it has expired."))
