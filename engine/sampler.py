"""Drawing one frame per request: all requests, all codebooks, in one vectorised step.

The order is ChatTTS': logits / temperature, windowed repetition penalty, top-p, top-k, draw. Both
filters keep a prefix of the candidates sorted by score (ties broken by the lower id, so that a cut
never depends on how many candidates the neighbours need), hence one `topk` serves both.

Noise is a hash of (seed, position, codebook, candidate): there is no generator state, so what a
request draws depends on itself alone, not on its neighbours, on how its prompt was chunked, or on
how often it was preempted.
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
from engine.lm_config import LmConfig

EXTRA_ARGS_KEY = "voxgate"
"""Where a request's parameters travel in vLLM's `SamplingParams.extra_args`."""

MIN_KEPT = 3
"""Both filters keep at least this many candidates."""

_MIN_SORTED = 32


def _signed(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


_GOLDEN = _signed(0x9E3779B97F4A7C15)
_MIX_1 = _signed(0xBF58476D1CE4E5B9)
_MIX_2 = _signed(0x94D049BB133111EB)


class RequestParams(NamedTuple):
    """Parameters of one request as they travel to the engine process."""

    seed: int = 0
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
            seed=_signed(sampling.seed),
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


_INTEGER = ("seed", "top_k", "window", "min_frames", "oldest")
_FLOAT = ("temperature", "top_p", "penalty")


@dataclass(frozen=True, slots=True)
class Batch:
    """What a step needs to know about its requests besides logits; tensors are on the device.

    Per row: the request's parameters, `generated` (frames so far), `history` (token ids of the last
    W generated frames, oldest first, right aligned; entries older than the request's own output may
    hold anything) and `oldest` (token id of its oldest live ring frame, 0 if none). `sorted_k`
    candidates are enough for every row; `window` is W; `any_text` says whether a row is in text
    mode.
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
    sorted_k: int
    any_text: bool


class ParamColumns:
    """Parameters of many requests as one integer, one float and one boolean array on the host.

    Rows are filled when a request joins; a step takes the rows of its batch.
    """

    def __init__(self, rows: int) -> None:
        self.integers: npt.NDArray[np.int64] = np.zeros((len(_INTEGER), rows), np.int64)
        self.floats: npt.NDArray[np.float32] = np.ones((len(_FLOAT), rows), np.float32)
        self.text: npt.NDArray[np.bool_] = np.zeros(rows, np.bool_)

    def put(self, row: int, params: RequestParams) -> None:
        self.integers[:, row] = [getattr(params, name) for name in _INTEGER]
        self.floats[:, row] = [getattr(params, name) for name in _FLOAT]
        self.text[row] = params.text

    def columns(self, integers: Tensor, floats: Tensor, text: Tensor) -> dict[str, Tensor]:
        """Name the rows of gathered copies of the three arrays."""
        named: dict[str, Tensor] = dict(zip(_INTEGER, integers, strict=True))
        named.update(zip(_FLOAT, floats, strict=True))
        named["text"] = text
        return named

    def bounds(self, rows: Sequence[int] | slice) -> tuple[int, int, bool]:
        """Largest top-k and window, and whether any text mode, among rows."""
        chosen = self.integers[:, rows]
        return (
            int(chosen[_INTEGER.index("top_k")].max(initial=1)),
            int(chosen[_INTEGER.index("window")].max(initial=0)),
            bool(self.text[rows].any()),
        )


def sorted_candidates(top_k: int) -> int:
    """How many candidates to sort for the largest `top_k` of a batch: few distinct sizes."""
    return max(_MIN_SORTED, 1 << (top_k - 1).bit_length())


def mix(z: Tensor) -> Tensor:
    """A bijective scramble of int64 (the finaliser of splitmix64, Steele et al. 2014)."""
    # `>>` is arithmetic on int64: the mask makes it the logical shift the function is defined with.
    z = (z ^ ((z >> 30) & ((1 << 34) - 1))) * _MIX_1
    z = (z ^ ((z >> 27) & ((1 << 37) - 1))) * _MIX_2
    return z ^ ((z >> 31) & ((1 << 33) - 1))


def stream_keys(seed: Tensor, position: Tensor, streams: int) -> Tensor:
    """Noise keys (B, streams) of B requests; stream i is the i-th drawn codebook."""
    key = mix(mix(seed + _GOLDEN) + position)
    return mix(key[:, None] + torch.arange(streams, device=seed.device))


def gumbel(keys: Tensor, candidates: Tensor) -> Tensor:
    """Standard Gumbel noise (R, K) for candidate ids (R, K) under keys (R,)."""
    bits = (mix(keys[:, None] + candidates * _GOLDEN) >> 41) & ((1 << 23) - 1)
    # 23 bits and a half are exact in float32 and never reach 0 or 1.
    uniform = (bits.to(torch.float32) + 0.5) * 2.0**-23
    return -torch.log(-torch.log(uniform))


def penalise(logits: Tensor, recent: Tensor, valid: Tensor, penalty: Tensor) -> Tensor:
    """Repetition penalty: score (R, V) of an id seen n times in `recent` (R, W) where `valid` is
    divided by penalty ** n if positive, else multiplied by it. `penalty` is (R,)."""
    if not recent.shape[1]:
        return logits
    same = (recent[:, :, None] == recent[:, None, :]) & valid[:, None, :]
    factor = penalty[:, None] ** same.sum(-1)
    scores = logits.gather(1, recent)
    # An entry of `recent` that is not valid may name an id that also occurs as a valid one: every
    # occurrence computes the same count, so all of them write the same value.
    return logits.scatter(1, recent, torch.where(scores < 0, scores * factor, scores / factor))


def candidates(
    logits: Tensor, top_p: Tensor, top_k: Tensor, sorted_k: int
) -> tuple[Tensor, Tensor]:
    """Ids (R, K) in descending order of score and their log probabilities, -inf where cut.

    `logits` (R, V) float32, `top_p` (R,), `top_k` (R,). Probabilities are those after softmax over
    all V, not renormalised.
    """
    size = logits.shape[1]
    bits = logits.contiguous().view(torch.int32).to(torch.int64)
    # Monotone integer image of a float, then the id: a total order without ties.
    ordered = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    order = torch.arange(size - 1, -1, -1, device=logits.device)
    ids = (ordered * size + order).topk(min(sorted_k, size), dim=1).indices
    logp = logits.gather(1, ids) - logits.logsumexp(1, keepdim=True)
    p = logp.exp()
    before = p.cumsum(1) - p
    rank = torch.arange(ids.shape[1], device=logits.device)
    kept = (before < top_p[:, None]) & (rank < top_k[:, None]) | (rank < MIN_KEPT)
    return ids, logp.masked_fill(~kept, -torch.inf)


def draw(
    logits: Tensor,
    *,
    keys: Tensor,
    temperature: Tensor,
    recent: Tensor,
    valid: Tensor,
    penalty: Tensor,
    top_p: Tensor,
    top_k: Tensor,
    sorted_k: int,
    end: int,
    end_forbidden: Tensor,
) -> Tensor:
    """One id per row (R,) from logits (R, V); every other tensor has R rows.

    `recent` (R, W) are the last drawn ids where `valid`; `end` is masked where `end_forbidden`.
    """
    scores = logits.to(torch.float32) / temperature[:, None]
    scores = penalise(scores, recent, valid, penalty)
    scores[:, end].masked_fill_(end_forbidden, -torch.inf)
    ids, logp = candidates(scores, top_p, top_k, sorted_k)
    chosen = (logp + gumbel(keys, ids)).argmax(1, keepdim=True)
    return ids.gather(1, chosen)[:, 0]


class FrameSampler:
    """One step of a batch: logits in, token ids out, codes (and hidden states) in the ring.

    `ring` (rows, codebooks) int16 and `hidden_ring` (hidden_rows, hidden_size) live on the model's
    device; `span` is the store's.
    """

    def __init__(
        self, config: LmConfig, ring: Tensor, *, span: int, hidden_ring: Tensor | None = None
    ) -> None:
        self._config = config
        self._ring = ring
        self._hidden_ring = hidden_ring
        self._span = span
        device = ring.device
        self._sampled = torch.tensor(config.sampled_codebooks, device=device)
        self._template = torch.tensor(
            [config.fixed_codes.get(i, 0) for i in range(config.codebooks)],
            dtype=torch.int16,
            device=device,
        )

    def step(
        self,
        logits: Tensor,
        batch: Batch,
        serial: int,
        *,
        hidden: Tensor | None = None,
        text_logits: Tensor | None = None,
    ) -> Tensor:
        """Token ids (B,) int64. Uses ring rows of serials [serial, serial + B), already reserved.

        `logits` (B, S * code_vocab) for the S sampled codebooks; `hidden` (B, H) and `text_logits`
        (B, text_vocab) where they are kept or wanted.
        """
        config = self._config
        codes = self._draw_codes(logits, batch)
        size = len(codes)
        ended = (codes == config.end_code).any(1)
        # Rows of ended requests are never read; the end code would not be a valid codec code.
        frames = self._template.repeat(size, 1)
        frames[:, self._sampled] = codes.clamp(max=config.end_code - 1).to(torch.int16)
        offsets = torch.arange(serial, serial + size, device=codes.device)
        self._ring[offsets % self._ring.shape[0]] = frames
        if self._hidden_ring is not None:
            assert hidden is not None
            rows = offsets % self._hidden_ring.shape[0]
            self._hidden_ring[rows] = hidden.to(self._hidden_ring.dtype)
        ids = torch.where(ended, config.end_id, FRAME_BASE + offsets % self._span)
        if batch.any_text:
            assert text_logits is not None
            ids = torch.where(batch.text, self._draw_text(text_logits, batch), ids)
        age = (serial - (batch.oldest - FRAME_BASE)) % self._span
        gone = (batch.oldest > 0) & (age > self._ring.shape[0] - size)
        return torch.where(gone, config.overrun_id, ids)

    def _draw_codes(self, logits: Tensor, batch: Batch) -> Tensor:
        """Codes (B, S) of the sampled codebooks."""
        config = self._config
        size, streams = logits.shape[0], len(config.sampled_codebooks)
        width = batch.history.shape[1]
        rows = (batch.history - FRAME_BASE) % self._ring.shape[0]
        seen = self._ring[rows][..., self._sampled].to(torch.int64)

        def each(values: Tensor) -> Tensor:
            return values.repeat_interleave(streams, 0)

        drawn = draw(
            logits.reshape(size * streams, config.code_vocab),
            keys=stream_keys(batch.seed, batch.generated, streams).flatten(),
            temperature=each(batch.temperature),
            recent=seen.transpose(1, 2).reshape(size * streams, width),
            valid=each(self._valid(batch)),
            penalty=each(batch.penalty),
            top_p=each(batch.top_p),
            top_k=each(batch.top_k),
            sorted_k=batch.sorted_k,
            end=config.end_code,
            end_forbidden=each(batch.generated < batch.min_frames),
        )
        return drawn.view(size, streams)

    def _draw_text(self, logits: Tensor, batch: Batch) -> Tensor:
        config = self._config
        assert config.text_end_id is not None
        ids = draw(
            logits,
            keys=stream_keys(batch.seed, batch.generated, 1)[:, 0],
            temperature=batch.temperature,
            # Rows of other modes hold frame handles here; what they draw is thrown away.
            recent=batch.history.clamp(0, config.text_vocab - 1),
            valid=self._valid(batch),
            penalty=batch.penalty,
            top_p=batch.top_p,
            top_k=batch.top_k,
            sorted_k=batch.sorted_k,
            end=config.text_end_id,
            end_forbidden=batch.generated < batch.min_frames,
        )
        return torch.where(ids == config.text_end_id, config.end_id, ids)

    @staticmethod
    def _valid(batch: Batch) -> Tensor:
        """Which history entries (B, W) are the request's own and inside its window."""
        width = batch.history.shape[1]
        back = torch.arange(width, 0, -1, device=batch.history.device)
        return back <= torch.minimum(batch.window, batch.generated)[:, None]
