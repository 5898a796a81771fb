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

from engine.batch import ParamColumns, RequestParams, gather_batch
from engine.model import VoxgateForCausalLM
from engine.runners.lifetime import adopt_process
from engine.sampler import FrameSampler


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
        self._params = ParamColumns(slots=runner.input_batch.max_num_reqs)
        self._seen: list[str] = []
        self._bounds = self._params.bounds(slice(0, 0))

    def forward(self, logits: Tensor, sampling_metadata: Any, **_: Any) -> SamplerOutput:
        inputs = self._runner.input_batch
        size = len(logits)
        if sampling_metadata is not inputs.sampling_metadata:
            # The runner's dummy run: there are no requests behind these logits.
            return _output(torch.zeros(size))
        if inputs.req_ids != self._seen:
            self._refresh(inputs)
        batch = gather_batch(
            torch.from_numpy(self._params.integers)[:, :size],
            torch.from_numpy(self._params.floats)[:, :size],
            tokens=inputs.token_ids_cpu_tensor,
            rows=torch.arange(size),
            total=inputs.num_tokens_no_spec_cpu_tensor[:size].to(torch.int64),
            bounds=self._bounds,
        )
        first = self._store.reserve(size)
        ids = self._frames.step(
            logits,
            batch,
            torch.arange(first, first + size),
            hidden=self._model.sampled_hidden,
            text_logits=self._model.compute_text_logits() if batch.bounds.any_text else None,
        )
        return _output(ids)

    def _refresh(self, inputs: Any) -> None:
        """Fill the columns anew; only when the batch changed."""
        for slot, req_id in enumerate(inputs.req_ids):
            sampling = self._runner.requests[req_id].sampling_params
            self._params.put(
                slot,
                RequestParams.from_extra_args(sampling.extra_args),
                prompt=int(inputs.num_prompt_tokens[slot]),
            )
        self._bounds = self._params.bounds(slice(0, len(inputs.req_ids)))
        self._seen = list(inputs.req_ids)


def _output(ids: Tensor) -> SamplerOutput:
    return SamplerOutput(sampled_token_ids=ids.to(torch.int32).unsqueeze(-1), logprobs_tensors=None)


class VoxgateCPUWorker(CPUWorker):  # type: ignore[misc]
    """vLLM's CPU worker with our sampler."""

    def load_model(self, *, load_dummy_weights: bool = False) -> None:
        adopt_process(self.distributed_init_method)
        _make_compiled_models_loadable()
        super().load_model(load_dummy_weights=load_dummy_weights)
        self.model_runner.sampler = V1Sampler(self.model_runner)


def _make_compiled_models_loadable() -> None:
    """Let vLLM find the compiled model of an earlier start.

    vLLM 0.32.0 saves it, but on the CPU it trips over loading it: it asks what it loaded for a
    last step that only the code of its GPU backend has. Every start would compile anew.
    """
    load = torch.compiler.load_compiled_function

    def load_and_complete(*args: Any, **kwargs: Any) -> Any:
        loaded: Any = load(*args, **kwargs)
        compiled = loaded._artifacts.compiled_fn
        if not hasattr(compiled, "finalize_loading"):
            compiled.finalize_loading = lambda _vllm_config: None
        return loaded

    torch.compiler.load_compiled_function = load_and_complete
