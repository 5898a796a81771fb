"""Sessions recorded on the wire: every event that goes in with its time, every message out.

One file of JSON lines a session, `<id>.jsonl`; see docs/recordings.md. It holds the users' text, so
it is written only where an operator asks for it. The engine's audio goes beside it as
`<id>.f32` (bare float32 samples) if that is wanted too; otherwise only where it was audible.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import os
from collections.abc import Callable
from dataclasses import asdict, astuple, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import orjson

from engine.api import AUDIBLE, AudioChunk, Pcm, SpeechError
from gateway.actions import Close, Command, Outgoing, Resume, StartPiece
from gateway.offer import Offer
from gateway.protocol import HEADER, Error, ProtocolError, ServerDraining
from gateway.runaway import Guard, GuardMaker, Verdict
from gateway.session import Session
from gateway.settings import Settings
from gateway.turn import STEP_SAMPLES

_log = logging.getLogger("voxgate.recording")
VERSION = 1


class Recording:
    """The files of one session. Lines are written out whenever a JSON message was sent.

    What cannot be written (a full disk) ends the recording, not the session.
    """

    def __init__(self, folder: Path, name: str, *, audio: bool) -> None:
        self._name = name
        self._with_audio = audio
        self._files: list[BinaryIO] = []
        self._samples = 0
        try:
            for suffix in ("jsonl", "f32")[: 1 + audio]:
                # Texts, and the token that resumes the session.
                handle = os.open(
                    folder / f"{name}.{suffix}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600
                )
                self._files.append(os.fdopen(handle, "wb"))
        except OSError as failure:
            self._give_up(failure)

    def write(self, **event: Any) -> None:
        self._write(0, orjson.dumps(event) + b"\n")

    def pcm(self, pcm: Pcm) -> dict[str, Any]:
        """Audio of a chunk as fields of its event."""
        if not self._with_audio:
            return {"audible": audible_parts(pcm)}
        self._write(1, pcm.astype("<f4").tobytes())
        start, self._samples = self._samples, self._samples + pcm.size
        return {"start": start}

    def flush(self) -> None:
        try:
            for file in self._files:
                file.flush()
        except OSError as failure:
            self._give_up(failure)

    def close(self) -> None:
        files, self._files = self._files, []
        for file in files:
            # Closing writes what is left, and may fail as well.
            with contextlib.suppress(OSError):
                file.close()

    def _write(self, index: int, data: bytes) -> None:
        if self._files:
            try:
                self._files[index].write(data)
            except OSError as failure:
                self._give_up(failure)

    def _give_up(self, failure: OSError) -> None:
        _log.error("session %s is recorded no further: %s", self._name, failure)
        self.close()


def audible_parts(pcm: Pcm) -> list[list[int]]:
    """First and last audible sample of each step of a chunk that has any: all that decides where
    audio lies on the sample clock."""
    parts = []
    for at in range(0, pcm.size, STEP_SAMPLES):
        loud = np.flatnonzero(np.abs(pcm[at : at + STEP_SAMPLES]) > AUDIBLE)
        if loud.size:
            parts.append([at + int(loud[0]), at + int(loud[-1])])
    return parts


def described(command: Command) -> list[Any]:
    """A command as it stands in a recording."""
    if isinstance(command, StartPiece):
        request = command.request
        values = {key: value for key, value in asdict(request).items() if key != "sampling"}
        values["context"] = request.context is not None
        return ["start", command.key, values]
    if isinstance(command, Resume):
        return ["resume", command.received]
    return ["cancel", command.key]


def sent(item: Outgoing, *, payload: bool) -> dict[str, Any]:
    """A message as it stands in a recording; of audio the header alone, if not `payload`."""
    if isinstance(item, Close):
        return {"close": [item.code, item.reason]}
    if isinstance(item, str):
        return {"text": item}
    kept = item if payload else item[: HEADER.size]
    return {"audio": base64.b64encode(kept).decode()}


class _NotedGuard:
    def __init__(self, guard: Guard, note: Callable[[Verdict | None], None]) -> None:
        self._guard, self._note = guard, note

    def feed(self, pcm: Pcm) -> Verdict | None:
        verdict = self._guard.feed(pcm)
        self._note(verdict)
        return verdict


class RecordedSession(Session):
    """A session that writes down all it takes and gives."""

    def __init__(
        self,
        name: str,
        settings: Settings,
        offer: Offer,
        observer: Any,
        now: float,
        *,
        token: str,
        refusal: Error | None = None,
        folder: Path,
        audio: bool,
    ) -> None:
        self._verdict: Verdict | None = None
        watched = replace(offer, make_guard=self._make_guard(offer.make_guard))
        super().__init__(name, settings, watched, observer, now, token=token, refusal=refusal)
        self._recording = Recording(folder, name, audio=audio)
        self._payload = audio
        self._quiet = False
        """Whether what happens is no event from outside, or comes after the end."""
        self._recording.write(
            recording=VERSION,
            session=name,
            token=token,
            now=now,
            refusal=refusal.code if refusal else None,
            settings=asdict(settings),
            voices=[asdict(voice) for voice in offer.voices],
            limits=asdict(offer.limits),
            lexicon=offer.lexicon.entries,
            payload=audio,
        )

    def _make_guard(self, make: GuardMaker) -> GuardMaker:
        """Guards whose verdicts are noted: a stand-in for the audio could not tell them."""
        return lambda text, speed: _NotedGuard(make(text, speed), self._noted)

    def _noted(self, verdict: Verdict | None) -> None:
        self._verdict = verdict

    def _note(self, kind: str, now: float | None = None, **values: Any) -> None:
        if not self._quiet:
            self._recording.write(event=kind, now=now, **values)

    def receive(self, raw: str | bytes, now: float) -> None:
        if isinstance(raw, str):
            self._note("receive", now, text=raw)
        else:
            self._note("receive", now, bytes=base64.b64encode(raw).decode())
        self._quiet = True
        try:
            super().receive(raw, now)
        finally:
            self._quiet = False

    def refuse(self, refusal: ProtocolError, request: str | None) -> None:
        details = {
            key: value
            for key, value in asdict(refusal.error).items()
            if value is not None and key not in ("code", "message", "hint", "fatal")
        }
        self._note("refuse", code=refusal.code, request=request, details=details)
        super().refuse(refusal, request)

    def resume(self, received: int, now: float) -> None:
        self._note("resume", now, received=received)
        super().resume(received, now)

    def audio(self, key: int, chunk: AudioChunk, now: float) -> None:
        self._verdict = None
        super().audio(key, chunk, now)
        self._note(
            "audio",
            now,
            key=key,
            samples=chunk.pcm.size,
            **({} if self._quiet else self._recording.pcm(chunk.pcm)),
            final=chunk.final,
            context=chunk.context is not None,
            truncated=chunk.truncated,
            tokens=[chunk.prompt_tokens, chunk.cached_tokens],
            words=[astuple(word) for word in chunk.words],
            verdict=self._verdict,
        )

    def failed(self, key: int, error: SpeechError, now: float) -> None:
        self._note(
            "failed",
            now,
            key=key,
            code=error.code,
            message=error.message,
            retryable=error.retryable,
        )
        super().failed(key, error, now)

    def tick(self, now: float) -> None:
        self._note("tick", now)
        super().tick(now)

    def admit(self, refusal: Error | None) -> None:
        self._note("admit", refusal=None if refusal is None else asdict(refusal))
        super().admit(refusal)

    def drain(self, now: float, notice: ServerDraining) -> None:
        self._note("drain", now, notice=asdict(notice))
        super().drain(now, notice)

    def hurry(self, now: float) -> None:
        self._note("hurry", now)
        super().hurry(now)

    def abandon(self) -> None:
        if not self._quiet:
            self._note("abandon")
            self._quiet = True
            self._recording.close()
        super().abandon()

    def commands(self) -> list[Command]:
        commands = super().commands()
        if commands:
            self._note("commands", commands=[described(command) for command in commands])
        return commands

    def take(self, now: float) -> Outgoing | None:
        item = super().take(now)
        if item is None:
            self._note("take", now)
        else:
            self._note("take", now, **sent(item, payload=self._payload))
        if isinstance(item, str | Close) and not self._quiet:
            self._recording.flush()
        return item


def session_maker(settings: Settings) -> Callable[..., Session]:
    """What makes the sessions of a server: recorded ones where the settings name a folder.

    Raises `OSError` when that cannot be made.
    """
    if not settings.record_dir:
        return Session
    folder = Path(settings.record_dir)
    folder.mkdir(parents=True, exist_ok=True)
    return partial(RecordedSession, folder=folder, audio=bool(settings.record_audio))
