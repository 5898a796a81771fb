"""Adapter to vLLM's V2 model runner (CUDA): a model state that brings its own sampler.

Everything a step needs is on the device, so nothing waits for it: parameters are copied there when
a request joins, recent token ids are read from the runner's own table, and the frames drawn are
copied to shared memory on the runner's stream before the token ids that name them leave for the
host. A step is some hundred small operations, far more launch time than work, so the usual ones are
captured once for a ladder of batch sizes and replayed.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor
from vllm.v1.worker.gpu_worker import Worker

from engine.batch import Bounds, ParamColumns, RequestParams, gather_batch
from engine.frames import FrameStore
from engine.model import VoxgateForCausalLM
from engine.runners.lifetime import adopt_process
from engine.sampler import FrameSampler

_log = logging.getLogger(__name__)

_CAPTURED_TOP_K = 32
_CAPTURED_WINDOW = 16


class VoxgateGPUWorker(Worker):  # type: ignore[misc]
    """vLLM's GPU worker; captures the sampler once the model is warm."""

    def load_model(self, *, load_dummy_weights: bool = False) -> None:
        adopt_process(self.distributed_init_method)
        super().load_model(load_dummy_weights=load_dummy_weights)

    def compile_or_warm_up_model(self) -> Any:
        times = super().compile_or_warm_up_model()
        if not self.model_config.enforce_eager:
            self.model_runner.sampler.capture()
        return times


def model_state_class() -> type[Any]:
    """The model state, made late: its base needs what only a GPU build of vLLM can import."""
    from vllm.v1.worker.gpu.model_states.default import DefaultModelState

    class VoxgateModelState(DefaultModelState):  # type: ignore[misc]
        def custom_sampler(self, sampler: Any) -> tuple[Any, Any]:
            return V2Sampler(self.model, sampler.req_states), None

        def prepare_inputs(self, input_batch: Any, req_states: Any) -> dict[str, Any]:
            # Before every forward pass: rows registered since the last one.
            self.model.tables.sync()
            inputs: dict[str, Any] = super().prepare_inputs(input_batch, req_states)
            return inputs

    return VoxgateModelState


class _NoPenalties:
    # The runner counts sampled ids by vocabulary here unless told not to; ours lie outside it.
    output_bin_counts = None


class V2Sampler:
    """Stands in for `vllm.v1.worker.gpu.sample.sampler.Sampler` on a V2 model runner."""

    penalties_state = _NoPenalties()

    def __init__(self, model: VoxgateForCausalLM, req_states: Any) -> None:
        self._model = model
        self.req_states = req_states
        store = model.tables.store
        device = model.tables.ring.device
        slots = req_states.max_num_reqs
        self._params = ParamColumns(slots=slots)
        self._changed = False
        self._state = DeviceState(
            integers=torch.from_numpy(self._params.integers).to(device),
            floats=torch.from_numpy(self._params.floats).to(device),
            tokens=req_states.all_token_ids.gpu,
            total=req_states.total_len.gpu,
        )
        hidden_ring = None
        if store.shape.hidden_rows:
            hidden_ring = torch.from_numpy(store.hidden).to(device)
        self._frames = FrameSampler(
            model.lm_config, model.tables.ring, span=store.shape.span, hidden_ring=hidden_ring
        )
        self._mirror = Mirror(store, model.tables.ring, hidden_ring)
        self._store = store
        self._captured: list[CapturedStep] = []

    def add_request(self, req_idx: int, prompt_len: int, sampling_params: Any) -> None:
        """Called when a request joins, and again when it comes back from preemption."""
        params = RequestParams.from_extra_args(sampling_params.extra_args)
        self._params.put(req_idx, params, prompt=prompt_len)
        self._changed = True

    def apply_staged_writes(self) -> None:
        """Called before every forward pass."""
        if self._changed:
            # Through fresh pinned memory: the copy runs later, when the columns may have changed.
            for host, device in (
                (self._params.integers, self._state.integers),
                (self._params.floats, self._state.floats),
            ):
                device.copy_(torch.from_numpy(host).pin_memory(), non_blocking=True)
            self._changed = False

    def __call__(self, logits: Tensor, input_batch: Any) -> Any:
        from vllm.v1.worker.gpu.input_batch import get_num_sampled_and_rejected
        from vllm.v1.worker.gpu.sample.output import SamplerOutput

        size = input_batch.num_reqs
        bounds = self._params.bounds(input_batch.idx_mapping_np)
        first = self._store.reserve(size)
        rows = input_batch.idx_mapping
        captured = self._captured_for(size, bounds)
        if captured is not None:
            captured.load(logits, self._hidden(), rows, first)
            ids = captured.replay(size)
        else:
            ids = self._eager(logits, rows, first, bounds)
        self._mirror.copy(first, size)
        num_sampled, num_rejected = get_num_sampled_and_rejected(
            input_batch.seq_lens.new_ones(size),
            input_batch.seq_lens,
            input_batch.cu_num_logits,
            input_batch.idx_mapping,
            self.req_states.prefill_len.gpu,
        )
        return SamplerOutput(
            sampled_token_ids=ids.view(-1, 1),
            logprobs_tensors=None,
            num_nans=None,
            num_sampled=num_sampled,
            num_rejected=num_rejected,
        )

    def _hidden(self) -> Tensor | None:
        return self._model.sampled_hidden if self._store.shape.hidden_rows else None

    def _eager(self, logits: Tensor, rows: Tensor, first: int, bounds: Bounds) -> Tensor:
        return self._frames.step(
            logits,
            self._state.batch(rows.to(torch.int64), bounds),
            torch.arange(first, first + len(rows), device=rows.device),
            hidden=self._hidden(),
            text_logits=self._model.compute_text_logits() if bounds.any_text else None,
        )

    def capture(self) -> None:
        """Capture the usual step for a ladder of batch sizes up to the number of slots."""
        slots = self.req_states.max_num_reqs
        bounds = Bounds(top_k=_CAPTURED_TOP_K, window=_CAPTURED_WINDOW, any_text=False)
        config = self._model.lm_config
        pool = torch.cuda.graph_pool_handle()
        example = self._model.head_code.weight
        for size in reversed(ladder(slots)):
            # Whatever the rehearsals draw goes to rows nobody was given.
            first = self._store.reserve(size)
            step = CapturedStep(
                self._frames,
                self._state,
                bounds,
                logits=example.new_zeros(size, len(config.sampled_codebooks) * config.code_vocab),
                hidden=example.new_zeros(size, example.shape[1])
                if self._store.shape.hidden_rows
                else None,
                first=first,
            )
            step.capture(pool)
            self._captured.insert(0, step)

    def _captured_for(self, size: int, bounds: Bounds) -> CapturedStep | None:
        if bounds.any_text or bounds.top_k > _CAPTURED_TOP_K or bounds.window > _CAPTURED_WINDOW:
            return None
        return next((step for step in self._captured if step.size >= size), None)


class DeviceState:
    """Device tensors at fixed addresses that describe every slot; see `engine.batch`."""

    def __init__(self, *, integers: Tensor, floats: Tensor, tokens: Tensor, total: Tensor) -> None:
        self.integers = integers
        self.floats = floats
        self.tokens = tokens
        self.total = total

    def batch(self, rows: Tensor, bounds: Bounds) -> Any:
        return gather_batch(
            self.integers[:, rows],
            self.floats[:, rows],
            tokens=self.tokens,
            rows=rows,
            total=self.total[rows].to(torch.int64),
            bounds=bounds,
        )


class CapturedStep:
    """`FrameSampler.step` for one batch size as a CUDA graph.

    A smaller batch is padded by repeating its last row: the copies draw the same frame and write
    it to the same ring row.
    """

    def __init__(
        self,
        frames: FrameSampler,
        state: DeviceState,
        bounds: Bounds,
        *,
        logits: Tensor,
        hidden: Tensor | None,
        first: int,
    ) -> None:
        self.size = len(logits)
        self._frames = frames
        self._state = state
        self._bounds = bounds
        self._logits = logits
        self._hidden = hidden
        device = logits.device
        self._rows = torch.zeros(self.size, dtype=torch.int64, device=device)
        self._first = torch.full((), first, dtype=torch.int64, device=device)
        self._last = torch.full((), self.size - 1, dtype=torch.int64, device=device)

    def step(self) -> Tensor:
        offsets = torch.arange(self.size, device=self._rows.device)
        return self._frames.step(
            self._logits,
            self._state.batch(self._rows, self._bounds),
            self._first + torch.minimum(offsets, self._last),
            hidden=self._hidden,
        )

    def load(self, logits: Tensor, hidden: Tensor | None, rows: Tensor, first: int) -> None:
        """Put a step's inputs in place; `rows` (B,) are slots, `first` the first serial."""
        size = len(rows)
        self._first.fill_(first)
        self._last.fill_(size - 1)
        for buffer, values in (
            (self._rows, rows),
            (self._logits, logits),
            (self._hidden, hidden),
        ):
            if buffer is not None and values is not None:
                buffer[:size].copy_(values)
                if size < self.size:
                    buffer[size:].copy_(values[-1:].expand_as(buffer[size:]))

    def capture(self, pool: Any) -> None:
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.inference_mode(), torch.cuda.stream(side):
            for _ in range(2):
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.inference_mode(), torch.cuda.graph(self._graph, pool=pool):
            self._ids = self.step()

    def replay(self, size: int) -> Tensor:
        """Run what is loaded; token ids (size,) int64."""
        self._graph.replay()
        # The next replay may overwrite the graph's output before this one's has reached the host.
        return self._ids[:size].clone()


class Mirror:
    """Copies of the ring rows of a step in shared memory, made on the current stream."""

    def __init__(self, store: FrameStore, ring: Tensor, hidden_ring: Tensor | None) -> None:
        self._pairs = [(ring, torch.from_numpy(store.codes))]
        if hidden_ring is not None:
            self._pairs.append((hidden_ring, torch.from_numpy(store.hidden)))
        if ring.is_cuda:
            for _, host in self._pairs:
                _page_lock(host)

    def copy(self, first: int, count: int) -> None:
        """Copy the rows of serials [first, first + count)."""
        for device, host in self._pairs:
            rows = len(device)
            start = first % rows
            until_wrap = min(count, rows - start)
            for begin, end in ((start, start + until_wrap), (0, count - until_wrap)):
                if end > begin:
                    host[begin:end].copy_(device[begin:end], non_blocking=True)


def _page_lock(host: Tensor) -> None:
    """Let the device write here by itself. Without it copies still work, but the host waits."""
    runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    status = runtime.cudaHostRegister(host.data_ptr(), host.numel() * host.element_size(), 0)
    if int(status) != 0:
        _log.warning("shared frames cannot be page-locked (CUDA error %d)", int(status))


def ladder(most: int) -> list[int]:
    """Batch sizes to capture: steps of at most a half, up to and with `most`."""
    sizes = {1, most}
    power = 2
    while power < most:
        sizes.update({power, min(power * 3 // 2, most)})
        power *= 2
    return sorted(sizes)
