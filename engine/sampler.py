"""Drawing one frame per request: all requests, all codebooks, in one vectorised step.

The order is ChatTTS': logits / temperature, windowed repetition penalty, top-p, top-k, draw. Both
filters keep a prefix of the candidates sorted by score (ties broken by the lower id, so that a cut
never depends on how many candidates the neighbours need), hence one `topk` serves both.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.batch import Batch
from engine.frames import FRAME_BASE
from engine.lm_config import LmConfig
from engine.noise import gumbel, stream_keys

MIN_KEPT = 3
"""Both filters keep at least this many candidates."""

_MIN_SORTED = 32


def sorted_candidates(top_k: int) -> int:
    """How many candidates to sort for the largest `top_k` of a batch: few distinct sizes."""
    return max(_MIN_SORTED, 1 << (top_k - 1).bit_length())


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
    bits = logits.contiguous().view(torch.int32)
    # Monotone integer image of a float, then the id: a total order without ties.
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    reverse = torch.arange(size - 1, -1, -1, device=logits.device)
    keys = torch.add(reverse, ordered.to(torch.int64), alpha=size)
    ids = keys.topk(min(sorted_k, size), dim=1).indices
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
        serials: Tensor,
        *,
        hidden: Tensor | None = None,
        text_logits: Tensor | None = None,
    ) -> Tensor:
        """Token ids (B,) int64; the frames go to the ring rows of `serials` (B,), ascending.

        `logits` (B, S * code_vocab) for the S sampled codebooks; `hidden` (B, H) and `text_logits`
        (B, text_vocab) where they are kept or wanted.
        """
        config = self._config
        codes = self._draw_codes(logits, batch)
        ended = (codes == config.end_code).any(1)
        # Rows of ended requests are never read; the end code would not be a valid codec code.
        frames = self._template.repeat(len(codes), 1)
        frames[:, self._sampled] = codes.clamp(max=config.end_code - 1).to(torch.int16)
        self._ring[serials % self._ring.shape[0]] = frames
        if self._hidden_ring is not None:
            assert hidden is not None
            rows = serials % self._hidden_ring.shape[0]
            self._hidden_ring[rows] = hidden.to(self._hidden_ring.dtype)
        ids = torch.where(ended, config.end_id, FRAME_BASE + serials % self._span)
        if batch.bounds.any_text:
            assert text_logits is not None
            ids = torch.where(batch.text > 0, self._draw_text(text_logits, batch), ids)
        # With this step's rows written, is the oldest frame of the request still there?
        age = (serials[-1:] + 1 - (batch.oldest - FRAME_BASE)) % self._span
        gone = (batch.oldest > 0) & (age > self._ring.shape[0])
        return torch.where(gone, config.overrun_id, ids)

    def _draw_codes(self, logits: Tensor, batch: Batch) -> Tensor:
        """Codes (B, S) of the sampled codebooks."""
        config = self._config
        size, streams = logits.shape[0], len(config.sampled_codebooks)
        width = batch.history.shape[1]
        rows = (batch.history - FRAME_BASE) % self._ring.shape[0]
        seen = self._ring[rows][..., self._sampled].to(torch.int64)

        def each(values: Tensor) -> Tensor:
            # Unlike `repeat_interleave`, this costs a copy and nothing else.
            shape = (size, streams, *values.shape[1:])
            return values[:, None].expand(shape).reshape(size * streams, *values.shape[1:])

        drawn = draw(
            logits.reshape(size * streams, config.code_vocab),
            keys=stream_keys(batch.seed, batch.generated, streams).flatten(),
            temperature=each(batch.temperature),
            recent=seen.transpose(1, 2).reshape(size * streams, width),
            valid=each(self._valid(batch)),
            penalty=each(batch.penalty),
            top_p=each(batch.top_p),
            top_k=each(batch.top_k),
            sorted_k=sorted_candidates(batch.bounds.top_k),
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
            sorted_k=sorted_candidates(batch.bounds.top_k),
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
