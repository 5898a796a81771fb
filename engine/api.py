"""The engine's public surface: plain data and one protocol, free of torch and vLLM.

`gateway` programs against this module; `engine.synthesizer` implements it. Everything is 24 kHz
mono float32 in [-1, 1].
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

SAMPLE_RATE = 24_000
SAMPLES_PER_FRAME = 512
"""One codec frame is 512 samples: 21.3 ms, 46.875 frames a second."""
AUDIBLE = 10.0 ** (-50.0 / 20.0)
"""Amplitude of -50 dBFS: below the softest onset of speech, above a vocoder's idle noise."""
DRY = 0
"""`SpeechRequest.priority` of a piece somebody waits for in silence."""
OFFLINE = 2**53
"""`SpeechRequest.priority` of a piece nobody listens to live."""

Pcm = npt.NDArray[np.float32]
Language = Literal["auto", "en", "zh"]


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling of one piece. `None` means the checkpoint's own default.

    temperature > 0; 0 < top_p <= 1; top_k >= 1; repetition_penalty is applied as
    `penalty ** count` over the last `repetition_window` generated frames of a codebook.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    repetition_penalty: float | None = None
    repetition_window: int | None = None
    min_frames: int | None = None
    max_frames: int | None = None


@dataclass(frozen=True, slots=True)
class SpeechRequest:
    """One piece of text to speak.

    `text` is spoken text (no markup); the engine normalises numbers, dates and the like itself.
    `speed` is a factor on the speaking rate (1.0 is normal, 1.25 faster).
    `priority`: when the listener runs dry, in milliseconds of the system's monotonic clock, or
    `DRY`, or `OFFLINE`; lower is scheduled first, and far ahead rests.
    `style`: some of `EngineLimits.styles`.
    `context` is the `context` of the previous piece's final chunk of the same turn and voice: the
    new piece continues its pitch and pace.
    """

    text: str
    voice: str = "default"
    language: Language = "auto"
    speed: float = 1.0
    style: tuple[str, ...] = ()
    seed: int | None = None
    priority: int = DRY
    context: object | None = None
    sampling: Sampling = field(default_factory=Sampling)


@dataclass(frozen=True, slots=True)
class WordTime:
    """When a word (Mandarin: a character) is said: code points `start..end` of the request's text,
    samples from the beginning of the piece."""

    start: int
    end: int
    start_sample: int
    end_sample: int


@dataclass(frozen=True, slots=True)
class AudioChunk:
    """Consecutive audio of one piece. `pcm` may be empty on the final chunk.

    `words` are those whose times are certain by now, in order, no word twice; an engine without an
    aligner tells none.
    `context` (final chunk only) continues the next piece; opaque, valid for some minutes.
    `prompt_tokens`/`cached_tokens` describe the prefix-cache use of this piece. `truncated` marks a
    piece that reached its frame limit without ending by itself.
    """

    pcm: Pcm
    final: bool = False
    context: object | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    truncated: bool = False
    words: tuple[WordTime, ...] = ()


@dataclass(frozen=True, slots=True)
class Voice:
    """A voice a client may name. `languages` are those it speaks well.

    `key`: what `SpeechRequest.voice` says for this very voice, even after another one got its id;
    empty: an id is for good.
    """

    id: str
    name: str
    languages: tuple[str, ...]
    gender: str = "unknown"
    description: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """What one request may ask for.

    `styles`: names for `SpeechRequest.style`, at most one of those that differ after the `_`; empty
    where a checkpoint has none. Where there are any, texts may hold control tags such as `[laugh]`.
    """

    max_text_chars: int
    max_streams: int
    min_speed: float
    max_speed: float
    styles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Spread:
    """A histogram: `counts[i]` values are at most `bounds[i]` and above the bound before; the last
    count is of those above all bounds. `total` is the sum of the values.
    """

    bounds: tuple[float, ...] = ()
    counts: tuple[int, ...] = (0,)
    total: float = 0.0


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A snapshot of the engine, cheap enough for every scrape."""

    state: str
    """`starting`, `ready`, `restarting` or `stopped`."""
    running: int = 0
    waiting: int = 0
    kv_cache_usage: float = 0.0
    prefix_cache_queries: int = 0
    prefix_cache_hits: int = 0
    preemptions: int = 0
    restarts: int = 0
    frames: int = 0
    decoding: int = 0
    """Streams with a live codec state."""
    steps: int = 0
    """Steps of the language model."""
    decode_seconds: float = 0.0
    """Time the codec has spent decoding."""
    cancel_steps: Spread = field(default_factory=Spread)
    """Steps from the cancelling of a piece to its slot being free, the one under way included."""
    cancel_seconds: Spread = field(default_factory=Spread)
    """The same in seconds."""


class SpeechError(Exception):
    """A request failed; no other request is affected.

    `code` is stable (see docs/protocol.md): `unknown_voice`, `empty_text`, `text_too_long`,
    `unpronounceable`, `unsupported_language`, `bad_speed`, `frame_ring_overrun`, `runaway`,
    `engine_restarting`, `engine_stopped`, `context_expired`. `retryable`: the same request may
    succeed later.
    """

    def __init__(self, code: str, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retryable = retryable


Progress = Callable[[str, float], None]
"""Called with (what is being done, share done in 0..1) while the engine starts."""


class Synthesizer(Protocol):
    """Text of one piece in, audio chunks out. All methods belong to one event loop."""

    async def start(self, progress: Progress | None = None) -> None:
        """Load, warm every voice's prompt, speak once. Raises `SpeechError`/`OSError`."""

    async def close(self) -> None:
        """Stop everything; live `speak` iterators raise `SpeechError("engine_stopped")`."""

    def voices(self) -> Sequence[Voice]: ...

    def voice_files(self) -> Sequence[Path]:
        """Files that say which voices there are, and may say it anew while the engine runs."""
        ...

    async def reload_voices(self) -> None:
        """Read them again. Voices that are changed or gone are still spoken by their `key`.

        Raises `ValueError` that names everything wrong, or `OSError`; nothing is changed then.
        """
        ...

    @property
    def limits(self) -> EngineLimits: ...

    def stats(self) -> EngineStats: ...

    def speak(self, request: SpeechRequest) -> AsyncGenerator[AudioChunk, None]:
        """Yield audio as it is made. Closing the generator (`aclose`) cancels: the engine slot is
        free within one step. Raises `SpeechError`."""
        ...


def describe(value: Any) -> str:
    """Short printable form of a value for error messages."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
