"""Frame handles: the shared table behind the token ids.

vLLM wants one token id a step; a frame is several codes. So every frame is a row of a table and
its token id names the row. The table is shared memory: the engine process writes what the front end
reads, and it outlives an engine process that is restarted. It has no name in any file system, only
one in /proc for as long as its creator holds it, so whoever is killed leaves nothing behind.

Token ids:

    [0, text_vocab)               text
    SPEAKER_BASE + row + k rows   a speaker vector; k counts the vectors that had the row before it
    STATIC_BASE + row             a registered reference frame, kept for the life of the store
    FRAME_BASE + serial % span    a generated frame; its row in the ring is serial % rows

`serial` counts every ring row ever handed out and never goes back, not even over a restart. A
frame's row is overwritten exactly when `serial` passes the frame's own by more than `rows`, so its
age tells whether a handle is still good; no tag per row is needed. `span` is the largest multiple
of `rows` whose ids fit an int32. `epoch` advances every half span: requests that carry it as their
prefix-cache salt can never meet a cached block of an older frame with the same id.

The writer advances `serial` before it writes rows, and the reader checks ages after it has copied
them: a row that changed under the reader is always noticed.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.api import SpeechError

SPEAKER_BASE = 400_000
STATIC_BASE = 500_000
FRAME_BASE = 1_000_000

PATH_VARIABLE = "VOXGATE_FRAMES"
"""Environment variable that tells the engine process where the store is."""

_MAGIC = 0x766F78_6761_7465
_LAYOUT = 2
_HEADER_BYTES = 4096
_FIELDS = (
    "magic",
    "layout",
    "rows",
    "codebooks",
    "static_rows",
    "speaker_rows",
    "hidden_size",
    "hidden_rows",
    "hidden_bytes",
    "serial",
    "version",
    "static_used",
    "speakers_used",
    "steps",
    "freed",
    "speaker_rounds",
)
_SLOT = {name: index for index, name in enumerate(_FIELDS)}

_FREED_KEPT = 256
_ROUND = 1 << 40

Codes = npt.NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class StoreShape:
    """Sizes of a store.

    `rows` ring frames of `codebooks` int16 codes; `hidden_rows` ring rows (0: none) of
    `hidden_size` floats of `hidden_bytes` (2 or 4) under the same serials; speaker vectors are
    float32 of `hidden_size`.
    """

    rows: int
    codebooks: int
    hidden_size: int
    static_rows: int = 65_536
    speaker_rows: int = 2_048
    hidden_rows: int = 0
    hidden_bytes: int = 2

    def __post_init__(self) -> None:
        if not 1 <= self.rows <= 1 << 26:
            raise ValueError(f"rows must be in 1..{1 << 26}, got {self.rows}")
        if self.hidden_rows < 0 or (self.hidden_rows and self.rows % self.hidden_rows):
            raise ValueError(f"hidden_rows must divide rows {self.rows}, got {self.hidden_rows}")
        if self.hidden_bytes not in (2, 4):
            raise ValueError(f"hidden_bytes must be 2 or 4, got {self.hidden_bytes}")
        if self.static_rows > FRAME_BASE - STATIC_BASE:
            raise ValueError(f"static_rows must be at most {FRAME_BASE - STATIC_BASE}")
        if self.speaker_rows > STATIC_BASE - SPEAKER_BASE:
            raise ValueError(f"speaker_rows must be at most {STATIC_BASE - SPEAKER_BASE}")

    @property
    def span(self) -> int:
        """Serials after which ids repeat."""
        return (2**31 - 1 - FRAME_BASE) // self.rows * self.rows

    def sections(self) -> list[tuple[str, tuple[int, int], np.dtype[Any]]]:
        """Name, shape and dtype of the tables, in file order."""
        hidden = np.dtype(np.float16 if self.hidden_bytes == 2 else np.float32)
        return [
            ("codes", (self.rows, self.codebooks), np.dtype(np.int16)),
            ("static", (self.static_rows, self.codebooks), np.dtype(np.int16)),
            ("speakers", (self.speaker_rows, self.hidden_size), np.dtype(np.float32)),
            ("hidden", (self.hidden_rows, self.hidden_size), hidden),
            ("freed", (_FREED_KEPT, 3), np.dtype(np.int64)),
        ]


def _aligned(size: int) -> int:
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE


class FrameStore:
    """One process's view of the shared table; see the module for the id layout.

    The front end creates it, registers rows and reads frames; the engine process attaches to it and
    alone calls `reserve` and writes ring rows.
    """

    codes: Codes
    """Ring frames (rows, codebooks)."""
    static: Codes
    """Registered reference frames (static_rows, codebooks)."""
    speakers: npt.NDArray[np.float32]
    """Registered speaker vectors (speaker_rows, hidden_size)."""
    hidden: npt.NDArray[np.floating[Any]]
    """Ring of hidden states (hidden_rows, hidden_size)."""
    freed: npt.NDArray[np.int64]
    """Ring of slots given up: request number, steps begun by then, monotonic nanoseconds."""

    def __init__(self, path: Path, descriptor: int, shape: StoreShape) -> None:
        self.path = path
        self.shape = shape
        self._descriptor = descriptor
        self._lock = Lock()
        self._map = mmap.mmap(descriptor, 0)
        self._header = np.frombuffer(self._map, np.int64, len(_FIELDS))
        offset = _HEADER_BYTES
        for name, size, dtype in shape.sections():
            count = size[0] * size[1]
            table = np.frombuffer(self._map, dtype, count, offset).reshape(size)
            setattr(self, name, table)
            offset += _aligned(count * dtype.itemsize)

    @classmethod
    def create(cls, shape: StoreShape) -> FrameStore:
        """Make a new store, empty; its memory is taken as it is used.

        Raises `OSError` when the system gives no shared memory.
        """
        size = _HEADER_BYTES + sum(
            _aligned(rows * columns * dtype.itemsize)
            for _, (rows, columns), dtype in shape.sections()
        )
        descriptor = os.memfd_create("voxgate-frames", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, size)
        header = {
            "magic": _MAGIC,
            "layout": _LAYOUT,
            "rows": shape.rows,
            "codebooks": shape.codebooks,
            "static_rows": shape.static_rows,
            "speaker_rows": shape.speaker_rows,
            "hidden_size": shape.hidden_size,
            "hidden_rows": shape.hidden_rows,
            "hidden_bytes": shape.hidden_bytes,
        }
        store = cls(Path(f"/proc/{os.getpid()}/fd/{descriptor}"), descriptor, shape)
        for field, value in header.items():
            store._header[_SLOT[field]] = value
        return store

    @classmethod
    def attach(cls, path: Path) -> FrameStore:
        """Open an existing store. Raises `OSError` when it is not one of ours."""
        descriptor = os.open(path, os.O_RDWR)
        raw = os.pread(descriptor, 8 * len(_FIELDS), 0)
        header = np.frombuffer(raw, np.int64) if len(raw) == 8 * len(_FIELDS) else np.zeros(2)
        if header[_SLOT["magic"]] != _MAGIC or header[_SLOT["layout"]] != _LAYOUT:
            os.close(descriptor)
            raise OSError(f"{path} is not a frame store of this version")
        sizes = {name: int(header[_SLOT[name]]) for name in StoreShape.__dataclass_fields__}
        return cls(path, descriptor, StoreShape(**sizes))

    @property
    def serial(self) -> int:
        """The next serial to be handed out."""
        return int(self._header[_SLOT["serial"]])

    @property
    def version(self) -> int:
        """Changes whenever a static frame or a speaker vector was added."""
        return int(self._header[_SLOT["version"]])

    @property
    def static_used(self) -> int:
        return int(self._header[_SLOT["static_used"]])

    @property
    def speakers_used(self) -> int:
        return int(self._header[_SLOT["speakers_used"]])

    @property
    def epoch(self) -> int:
        """Salt for prefix caching; see the module. Advances too when ids of speakers repeat."""
        rounds = int(self._header[_SLOT["speaker_rounds"]])
        return self.serial // (self.shape.span // 2) + rounds * _ROUND

    def reserve(self, count: int) -> int:
        """Hand out `count` serials; returns the first. Only the engine process may call it."""
        first = self.serial
        self._header[_SLOT["serial"]] = first + count
        return first

    @property
    def steps(self) -> int:
        """Steps that the engine process has begun."""
        return int(self._header[_SLOT["steps"]])

    def begin_step(self) -> None:
        """Count a step. Only the engine process may call it."""
        self._header[_SLOT["steps"]] += 1

    def note_freed(self, number: int, now_ns: int) -> None:
        """The slot of a cancelled request is free. Only the engine process may call it."""
        count = int(self._header[_SLOT["freed"]])
        self.freed[count % _FREED_KEPT] = number, self.steps, now_ns
        self._header[_SLOT["freed"]] = count + 1

    def freed_since(self, seen: int) -> tuple[int, npt.NDArray[np.int64]]:
        """How many slots were given up so far, and (n, 3) rows of `freed` after the first `seen`;
        the latest only, if it is long ago."""
        count = int(self._header[_SLOT["freed"]])
        rows = np.arange(max(seen, count - _FREED_KEPT), count) % _FREED_KEPT
        return count, self.freed[rows]

    def register_frames(self, codes: Codes) -> list[int]:
        """Keep (n, codebooks) codes for the life of the store; returns their token ids.

        Raises `ValueError` for a wrong shape, `SpeechError("engine_full")` when no row is left.
        """
        codes = np.asarray(codes)
        if codes.ndim != 2 or codes.shape[1] != self.shape.codebooks:
            raise ValueError(f"expected (n, {self.shape.codebooks}) codes, got {codes.shape}")
        with self._lock:
            first, count = self.static_used, len(codes)
            if first + count > self.shape.static_rows:
                raise SpeechError("engine_full", "no room for more reference audio")
            self.static[first : first + count] = codes
            self._header[_SLOT["static_used"]] = first + count
            self._header[_SLOT["version"]] += 1
        return list(range(STATIC_BASE + first, STATIC_BASE + first + count))

    def register_speaker(self, vector: npt.NDArray[np.float32]) -> int:
        """Keep one speaker vector (hidden_size,) for the life of the store; returns its token id.

        Raises `ValueError` for a wrong shape, `SpeechError("engine_full")` when no row is left.
        """
        vector = np.asarray(vector, np.float32)
        if vector.shape != (self.shape.hidden_size,):
            raise ValueError(f"expected ({self.shape.hidden_size},) vector, got {vector.shape}")
        with self._lock:
            row = self.speakers_used
            if row >= self.shape.speaker_rows:
                raise SpeechError("engine_full", "no room for more speaker vectors")
            self.speakers[row] = vector
            self._header[_SLOT["speakers_used"]] = row + 1
            self._header[_SLOT["version"]] += 1
        return SPEAKER_BASE + row

    def replace_speaker(self, token: int, vector: npt.NDArray[np.float32]) -> int:
        """Give the row of a registered speaker to another one; returns the token id of that.

        The id is new, so that no cached block of the one before can be taken for its own. The old
        id names the new vector from now on: nothing that uses it may still run. Raises `ValueError`
        for a wrong shape or an id that is no speaker's.
        """
        vector = np.asarray(vector, np.float32)
        if vector.shape != (self.shape.hidden_size,):
            raise ValueError(f"expected ({self.shape.hidden_size},) vector, got {vector.shape}")
        rows = self.shape.speaker_rows
        row = (token - SPEAKER_BASE) % rows
        if not SPEAKER_BASE <= token < STATIC_BASE or row >= self.speakers_used:
            raise ValueError(f"{token} is no speaker of this store")
        with self._lock:
            self.speakers[row] = vector
            fresh = token + rows
            if fresh >= STATIC_BASE:
                fresh = SPEAKER_BASE + row
                self._header[_SLOT["speaker_rounds"]] += 1
            self._header[_SLOT["version"]] += 1
        return fresh

    def oldest(self, ids: Sequence[int]) -> tuple[int, int]:
        """The oldest ring frame among token ids as (id, age); (0, 0) when there is none.

        Age 1 is the newest frame; a frame older than `rows` is gone.
        """
        tokens = np.asarray(ids, np.int64)
        ring = tokens[tokens >= FRAME_BASE]
        if not len(ring):
            return 0, 0
        ages = (self.serial - (ring - FRAME_BASE)) % self.shape.span
        worst = int(ages.argmax())
        return int(ring[worst]), int(ages[worst])

    def read(self, ids: Sequence[int]) -> tuple[Codes, npt.NDArray[np.floating[Any]] | None]:
        """Codes (n, codebooks) of ring frames, and their hidden states (n, hidden_size) if kept.

        Raises `SpeechError("frame_ring_overrun")` when one was overwritten.
        """
        serials = np.asarray(ids, np.int64) - FRAME_BASE
        codes = self.codes[serials % self.shape.rows]
        kept = self.shape.hidden_rows
        hidden = self.hidden[serials % kept] if kept else None
        ages = (self.serial - serials) % self.shape.span
        if len(ages) and int(ages.max()) > (kept or self.shape.rows):
            raise SpeechError(
                "frame_ring_overrun", "generated frames were overwritten before they were read"
            )
        return codes, hidden

    def close(self) -> None:
        """Unmap, and let no one attach to it any more. Views taken earlier keep their memory."""
        for name, _, _ in self.shape.sections():
            with contextlib.suppress(AttributeError):
                delattr(self, name)
        del self._header
        with contextlib.suppress(BufferError):
            self._map.close()
        os.close(self._descriptor)
