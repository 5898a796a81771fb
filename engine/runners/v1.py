"""Adapter to vLLM's V1 model runner (CPU): a worker that puts our sampler in place of its own.

The runner hands a sampler only logits and its own sampling metadata, so the rest is read from the
runner's input batch. Steps whose token the runner throws away (all but the last chunk of a prompt)
waste a ring row and nothing else: the position of the noise is the count of tokens kept.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from vllm.v1.outputs import SamplerOutput
from vllm.v1.worker.cpu_worker import CPUWorker

from engine.model import VoxgateForCausalLM
from engine.runners.lifetime import adopt_process
from engine.sampler import (
    Batch,
    FrameSampler,
    ParamColumns,
    RequestParams,
    sorted_candidates,
)


class V1Sampler(nn.Module):
    """Stands in for `vllm.v1.sample.sampler.Sampler` on a V1 model runner."""

    logprobs_mode = "raw_logprobs"

    def __init__(self, runner: Any) -> None:
        super().__init__()
        self._runner = runner
        self._model: VoxgateForCausalLM = runner.model
        tables, store = self._model.tables, self._model.tables.store
        self._store = store
        self._frames = FrameSampler(
            self._model.lm_config,
            tables.ring,
            span=store.shape.span,
            hidden_ring=torch.from_numpy(store.hidden) if store.shape.hidden_rows else None,
        )
        self._params = ParamColumns(runner.input_batch.max_num_reqs)
        self._seen: list[str] = []
        self._bounds = self._params.bounds(slice(0, 0))

    def forward(self, logits: Tensor, sampling_metadata: Any, **_: Any) -> SamplerOutput:
        inputs = self._runner.input_batch
        if sampling_metadata is not inputs.sampling_metadata:
            # The runner's dummy run: nothing behind these logits.
            ids = torch.zeros(len(logits), 1, dtype=torch.int32)
            return SamplerOutput(sampled_token_ids=ids, logprobs_tensors=None)
        batch = self._batch(inputs)
        ids = self._frames.step(
            logits,
            batch,
            self._store.reserve(len(logits)),
            hidden=self._model.sampled_hidden,
            text_logits=self._model.compute_text_logits() if batch.any_text else None,
        )
        return SamplerOutput(
            sampled_token_ids=ids.to(torch.int32).unsqueeze(-1), logprobs_tensors=None
        )

    def _batch(self, inputs: Any) -> Batch:
        size = inputs.num_reqs
        if inputs.req_ids != self._seen:
            self._refresh(inputs.req_ids)
        top_k, width, any_text = self._bounds
        params = self._params
        columns = params.columns(
            torch.from_numpy(params.integers)[:, :size],
            torch.from_numpy(params.floats)[:, :size],
            torch.from_numpy(params.text)[:size],
        )
        prompt = inputs.num_prompt_tokens_cpu_tensor[:size].to(torch.int64)
        total = inputs.num_tokens_no_spec_cpu_tensor[:size].to(torch.int64)
        generated = total - prompt
        tokens = inputs.token_ids_cpu_tensor[:size]
        history = tokens.gather(1, (total[:, None] + torch.arange(-width, 0)).clamp(min=0))
        first = tokens.gather(1, prompt.clamp(max=tokens.shape[1] - 1)[:, None])[:, 0]
        own = torch.where((generated > 0) & ~columns["text"], first.to(torch.int64), 0)
        columns["oldest"] = torch.where(columns["oldest"] > 0, columns["oldest"], own)
        return Batch(
            **columns,
            generated=generated,
            history=history.to(torch.int64),
            sorted_k=sorted_candidates(top_k),
            any_text=any_text,
        )

    def _refresh(self, req_ids: list[str]) -> None:
        """Fill the columns anew; only when the batch changed."""
        for row, req_id in enumerate(req_ids):
            sampling = self._runner.requests[req_id].sampling_params
            self._params.put(row, RequestParams.from_extra_args(sampling.extra_args))
        self._bounds = self._params.bounds(slice(0, len(req_ids)))
        self._seen = list(req_ids)


class VoxgateCPUWorker(CPUWorker):  # type: ignore[misc]
    """vLLM's CPU worker with our sampler."""

    def load_model(self, *, load_dummy_weights: bool = False) -> None:
        adopt_process()
        super().load_model(load_dummy_weights=load_dummy_weights)
        self.model_runner.sampler = V1Sampler(self.model_runner)
