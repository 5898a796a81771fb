"""What a checkpoint family must offer to the synthesizer: weights, codec, voices and prompts.

The language model, the sampler and the codec are the same code for every family; a checkpoint says
how they are configured and how a piece of text becomes a list of token ids.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from engine.api import EngineLimits, SpeechRequest, Voice

if TYPE_CHECKING:
    from engine.align.piece import PieceAlignment
    from engine.codec.model import Codec
    from engine.frontend.text import Reading

Codes = npt.NDArray[np.int16]
"""Codec codes, shape (frames, codebooks)."""
Frames = npt.NDArray[Any]
"""Codes (n, codebooks) int16 or hidden states (n, hidden) float."""


@dataclass(frozen=True, slots=True)
class CodeSampling:
    """Fully resolved sampling of one generation, as the sampler wants it.

    mode `code` draws one code per sampled codebook a step; `text` draws one text token (ChatTTS
    refine pass). `seed` keys the noise together with (position, codebook) and nothing else.
    """

    temperature: float
    top_p: float
    top_k: int
    repetition_penalty: float
    repetition_window: int
    min_frames: int
    max_frames: int
    seed: int
    mode: Literal["code", "text"] = "code"


@dataclass(frozen=True, slots=True)
class PromptContext:
    """What a finished piece leaves for the next one of the same turn and voice.

    `tokens` are the ids after the speaker prompt: text ids and frame handles (ring handles, so they
    expire when the ring has moved on).
    """

    voice: str
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PiecePlan:
    """One generation: the prompt, how to sample, and what is to be expected of it.

    `continuation` is the part of the prompt (ids after the speaker prompt) that, followed by the
    generated frame ids, becomes the next piece's `PromptContext.tokens`.
    `expected_frames` is a rough length; far longer is a runaway.
    `lead` (n, codebooks) are the frames the audio begins with, those that end the prompt.
    `reading` is how the text is read, for a checkpoint that can align it.
    """

    prompt: list[int]
    sampling: CodeSampling
    voice: str
    continuation: tuple[int, ...]
    expected_frames: int
    lead: Codes | None = None
    reading: Reading | None = None


class Registrar(Protocol):
    """Where a checkpoint registers the codes and vectors its prompts refer to."""

    block_size: int
    """KV block size in positions: speaker prompts are padded to whole blocks."""

    def register_frames(self, codes: Codes) -> list[int]:
        """Keep (n, codebooks) codes for the life of the engine; returns their n token ids."""
        ...

    def register_speaker(self, vector: npt.NDArray[np.float32]) -> int:
        """Keep one speaker vector (hidden,) for the life of the engine; returns its token id.
        Raises `SpeechError("engine_full")`."""
        ...

    def replace_speaker(self, token: int, vector: npt.NDArray[np.float32]) -> int:
        """Keep a vector in the place of another one; returns its token id."""
        ...


class Checkpoint(Protocol):
    """A loaded checkpoint family. Raises `SpeechError` from `plan`, `CheckpointError` on load."""

    decode_from: Literal["codes", "hidden"]

    def model_dir(self) -> Path:
        """A directory vLLM can load: config.json (`VoxgateForCausalLM`) and safetensors."""
        ...

    def codec(self) -> Codec: ...

    def voices(self) -> Sequence[Voice]: ...

    def limits(self, max_streams: int) -> EngineLimits:
        """What one request may ask for, given how many the engine runs at once."""
        ...

    def register(self, registrar: Registrar) -> None:
        """Register every voice's reference; called once, before the first `plan`."""
        ...

    def warm_prompts(self) -> list[list[int]]:
        """Prompts whose blocks should sit in the prefix cache from the start."""
        ...

    def plan(self, request: SpeechRequest) -> PiecePlan: ...


@runtime_checkable
class RefiningCheckpoint(Protocol):
    """A checkpoint that may first write the text it then speaks (ChatTTS' refine pass)."""

    def refine(self, request: SpeechRequest) -> PiecePlan | None:
        """The text generation to run before `plan`; None when the request asks for none."""
        ...

    def plan(self, request: SpeechRequest, refined: Sequence[int] | None = None) -> PiecePlan:
        """As `Checkpoint.plan`; `refined` are the ids that the generation of `refine` gave."""
        ...


@runtime_checkable
class AligningCheckpoint(Protocol):
    """A checkpoint that hears in its frames when words are said."""

    def alignment(self, request: SpeechRequest, plan: PiecePlan) -> PieceAlignment | None:
        """Of one piece, to be given its frames, lead first; None when there is no aligner."""
        ...


@runtime_checkable
class GrowingCheckpoint(Protocol):
    """A checkpoint that gets voices while it runs."""

    def voice_files(self) -> Sequence[Path]:
        """What `read_voices` reads first, there or not yet."""
        ...

    def read_voices(self) -> Callable[[], None]:
        """Read all voices again, in any thread; what is returned puts them in force, at once.

        Raises `CheckpointError` with all that is wrong, `SpeechError`; what is returned the latter.
        """
        ...


class CheckpointError(Exception):
    """A checkpoint cannot be used; the message names every missing or wrong file and tensor."""
