"""Which requests a step serves and how each wants to be sampled.

A request's parameters travel from the front end to the engine process in vLLM's `extra_args`, wait
there as a column of `ParamColumns`, and are gathered, with its recent token ids, into the `Batch`
of a step. Both runner adapters build their batches here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.checkpoints.base import CodeSampling
from engine.frames import FRAME_BASE
from engine.noise import scramble

EXTRA_ARGS_KEY = "voxgate"
"""Where a request's parameters travel in vLLM's `SamplingParams.extra_args`,"""
NUMBER_KEY = "voxgate_number"
"""and the number by which both processes know it."""


class RequestParams(NamedTuple):
    """Parameters of one request as they travel to the engine process."""

    seed: int = 0
    """Scrambled: see `engine.noise`."""
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 1
    penalty: float = 1.0
    window: int = 0
    min_frames: int = 0
    text: bool = False
    oldest: int = 0
    """Token id of the oldest ring frame in the prompt, 0 if there is none."""

    @classmethod
    def of(cls, sampling: CodeSampling, oldest: int) -> RequestParams:
        """Pack a resolved sampling; `oldest` is from `FrameStore.oldest`."""
        return cls(
            seed=scramble(sampling.seed),
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            penalty=sampling.repetition_penalty,
            window=sampling.repetition_window if sampling.repetition_penalty != 1.0 else 0,
            min_frames=sampling.min_frames,
            text=sampling.mode == "text",
            oldest=oldest,
        )

    @classmethod
    def from_extra_args(cls, extra_args: dict[str, Any] | None) -> RequestParams:
        """Unpack; requests that are not ours (vLLM's own warm-up) get the defaults."""
        packed = (extra_args or {}).get(EXTRA_ARGS_KEY)
        return cls() if packed is None else cls(*packed)


_INTEGERS = ("seed", "top_k", "window", "min_frames", "text", "oldest", "prompt")
_FLOATS = ("temperature", "top_p", "penalty")


@dataclass(frozen=True, slots=True)
class Batch:
    """What a step needs to know about its requests besides logits; tensors are on the device.

    Per row: the request's parameters, `generated` (frames so far), `history` (token ids of the last
    W generated frames, the newest last; entries from before the request's own output may hold
    anything) and `oldest` (token id of its oldest live ring frame, 0 if none). `bounds` are the
    rows'.
    """

    seed: Tensor
    temperature: Tensor
    top_p: Tensor
    top_k: Tensor
    penalty: Tensor
    window: Tensor
    min_frames: Tensor
    text: Tensor
    generated: Tensor
    history: Tensor
    oldest: Tensor
    bounds: Bounds


class Bounds(NamedTuple):
    """The most that any request of a batch asks for, known on the host."""

    top_k: int
    window: int
    any_text: bool


class ParamColumns:
    """Parameters of many requests: one column each, integers (7, slots) and floats (3, slots)."""

    def __init__(
        self,
        integers: npt.NDArray[np.int64] | None = None,
        floats: npt.NDArray[np.float32] | None = None,
        *,
        slots: int,
    ) -> None:
        """Uses the given arrays of `shapes(slots)`, where an adapter must own their memory."""
        shapes = self.shapes(slots)
        self.integers = np.zeros(shapes[0], np.int64) if integers is None else integers
        self.floats = np.zeros(shapes[1], np.float32) if floats is None else floats
        for slot in range(slots):
            self.put(slot, RequestParams(), prompt=0)

    @staticmethod
    def shapes(slots: int) -> tuple[tuple[int, int], tuple[int, int]]:
        return (len(_INTEGERS), slots), (len(_FLOATS), slots)

    def put(self, slot: int, params: RequestParams, *, prompt: int) -> None:
        """Fill a slot; `prompt` is the length of the request's prompt in positions."""
        values = params._asdict() | {"prompt": prompt}
        self.integers[:, slot] = [values[name] for name in _INTEGERS]
        self.floats[:, slot] = [values[name] for name in _FLOATS]

    def bounds(self, slots: Sequence[int] | npt.NDArray[Any] | slice) -> Bounds:
        chosen = dict(zip(_INTEGERS, self.integers[:, slots], strict=True))
        return Bounds(
            top_k=int(chosen["top_k"].max(initial=1)),
            window=int(chosen["window"].max(initial=0)),
            any_text=bool(chosen["text"].any()),
        )


def gather_batch(
    integers: Tensor,
    floats: Tensor,
    *,
    tokens: Tensor,
    rows: Tensor,
    total: Tensor,
    bounds: Bounds,
) -> Batch:
    """The batch of requests whose token ids are `rows` (B,) of `tokens` (slots, positions).

    `integers` (7, B) and `floats` (3, B) are the requests' columns, `total` (B,) how many token ids
    each has, prompt and output.
    """
    named = dict(zip(_INTEGERS, integers, strict=True))
    prompt = named.pop("prompt")
    generated = total - prompt
    back = torch.arange(-bounds.window, 0, device=tokens.device)
    history = tokens[rows[:, None], (total[:, None] + back).clamp(min=0)]
    first = tokens[rows, prompt.clamp(max=tokens.shape[1] - 1)]
    own = torch.where((generated > 0) & (first >= FRAME_BASE), first, 0)
    named["oldest"] = torch.where(named["oldest"] > 0, named["oldest"], own)
    return Batch(
        **named,
        **dict(zip(_FLOATS, floats, strict=True)),
        generated=generated,
        history=history.to(torch.int64),
        bounds=bounds,
    )
