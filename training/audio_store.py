"""Generated speech on disk and in memory: raw int16 shards with one JSON line an utterance.

A shard is `NAME.pcm` (24 kHz mono, little-endian int16, utterances separated by silence) and
`NAME.jsonl`. Both are only appended to, so a generator that was stopped can go on, and a reader
uses what is complete.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self, TextIO

import numpy as np
import numpy.typing as npt

SAMPLE_RATE = 24_000
GAP_SAMPLES = 6_000
"""Silence after each utterance, so that a segment may begin before it or end after it."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """One spoken text. `start` and `samples` are positions in the shard's audio; `edges` is
    where in the utterance the first symbol of `phonemes` begins and each ends, in samples, as far
    as the teacher tells."""

    text_id: str
    voice: str
    language: str
    phonemes: str
    speed: int
    start: int
    samples: int
    edges: list[int] = field(default_factory=list)


class ShardWriter:
    """Appends utterances to one shard; continues a shard that is already there."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        complete = list(read_shard(path))
        self._end = max((u.start + u.samples + GAP_SAMPLES for u in complete), default=0)
        self.done = len(complete)
        self._audio: BinaryIO = path.with_suffix(".pcm").open("ab")
        self._audio.truncate(self._end * 2)
        self._lines: TextIO = path.with_suffix(".jsonl").open("w", encoding="utf-8")
        for utterance in complete:
            self._write_line(utterance)

    def add(self, pcm: npt.NDArray[np.float32], **facts: str | int | list[int]) -> None:
        """`pcm` in [-1, 1]; `facts` are the fields of `Utterance` beside start and samples."""
        samples = (np.clip(pcm, -1, 1) * 32767).astype("<i2")
        self._audio.write(samples.tobytes() + b"\0" * (2 * GAP_SAMPLES))
        self._audio.flush()
        utterance = Utterance(**facts, start=self._end, samples=len(samples))  # type: ignore[arg-type]
        self._write_line(utterance)
        self._end += len(samples) + GAP_SAMPLES
        self.done += 1

    def _write_line(self, utterance: Utterance) -> None:
        self._lines.write(json.dumps(asdict(utterance), ensure_ascii=False) + "\n")
        self._lines.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._audio.close()
        self._lines.close()


def read_shard(path: Path) -> Iterator[Utterance]:
    """The utterances of a shard whose audio is complete."""
    lines, audio = path.with_suffix(".jsonl"), path.with_suffix(".pcm")
    if not lines.exists() or not audio.exists():
        return
    size = audio.stat().st_size // 2
    for line in lines.read_text("utf-8").splitlines():
        try:
            utterance = Utterance(**json.loads(line))
        except json.JSONDecodeError:
            return  # a line cut short by a stop
        if utterance.start + utterance.samples > size:
            return
        yield utterance
