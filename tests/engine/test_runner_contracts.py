"""What the adapters rely on inside vLLM, which promises none of it.

Each test names the file of ours that breaks when it fails: when vLLM is upgraded, start here.
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from vllm import SamplingParams
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.v1.engine.async_llm import AsyncLLM


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


def source_of(function: Any) -> str:
    return inspect.getsource(function)


# -- engine/runners/v1.py --------------------------------------------------------------------------


def test_the_v1_runner_samples_through_its_sampler_attribute() -> None:
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    source = source_of(GPUModelRunner._sample)
    assert "self.sampler(" in source, "runners/v1.py replaces model_runner.sampler"
    assert "sampling_metadata = self.input_batch.sampling_metadata" in source, (
        "runners/v1.py tells real steps from dummy runs by the identity of sampling_metadata"
    )
    dummy = source_of(GPUModelRunner._dummy_sampler_run)
    assert "self.input_batch.sampling_metadata" not in dummy


def test_the_v1_runner_throws_unfinished_prompts_draws_away() -> None:
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    assert "discard_request_mask" in source_of(GPUModelRunner._bookkeeping_sync), (
        "runners/v1.py counts on draws of unfinished prompts being dropped by the runner"
    )


def test_the_v1_input_batch_has_what_the_sampler_reads() -> None:
    from vllm.v1.worker.gpu_input_batch import CachedRequestState, InputBatch

    # Made for real: the layout matters, not the names alone.
    batch = InputBatch(
        max_num_reqs=2,
        max_model_len=16,
        max_num_batched_tokens=16,
        device=torch.device("cpu"),
        vocab_size=32,
        block_sizes=[8],
        max_num_blocks_per_req=[2],
    )
    extra = {"voxgate": [1, 2.0]}
    request = CachedRequestState(
        req_id="a",
        prompt_token_ids=[5, 6, 7],
        mm_features=[],
        sampling_params=SamplingParams(extra_args=extra),
        generator=None,
        block_ids=([0],),
        num_computed_tokens=0,
        output_token_ids=[1_000_000, 1_000_001],
    )
    before = batch.sampling_metadata
    batch.add_request(request)
    batch.condense()
    batch.refresh_metadata()
    assert batch.sampling_metadata is not before
    assert batch.req_ids == ["a"]
    assert batch.num_reqs == 1
    assert batch.num_prompt_tokens[0] == 3
    assert batch.num_tokens_no_spec_cpu_tensor[0] == 5
    assert batch.token_ids_cpu_tensor[0, :5].tolist() == [5, 6, 7, 1_000_000, 1_000_001]
    assert request.sampling_params is not None
    assert request.sampling_params.extra_args == extra


def test_the_cpu_worker_loads_its_model_where_ours_steps_in() -> None:
    from vllm.v1.worker.cpu_worker import CPUWorker

    assert parameters(CPUWorker.load_model) == ["self", "load_dummy_weights"]
    assert "self.model_runner.load_model(" in source_of(CPUWorker.load_model)


def test_an_eager_cpu_start_runs_no_warm_up() -> None:
    from vllm.v1.worker.cpu_worker import CPUWorker

    assert "kv_cache_memory_bytes is not None" in source_of(CPUWorker._should_warm_up_model), (
        "language_model.py starts fast because an explicit cache size skips the profile run"
    )


def test_a_loaded_compiled_model_is_asked_to_finish_where_ours_answers() -> None:
    from vllm.compilation import decorators

    source = source_of(decorators._try_load_aot_compiled_fn)
    assert "torch.compiler.load_compiled_function(" in source
    assert "loaded_fn._artifacts.compiled_fn.finalize_loading(" in source, (
        "runners/v1.py gives the loaded function this method; without it every start compiles"
    )


def test_cached_compiled_models_are_told_apart_by_our_constants() -> None:
    from vllm.config import VllmConfig

    assert "additional_config" in source_of(VllmConfig.compute_hash), (
        "language_model.py puts the constants of the compiled graph there"
    )


# -- engine/runners/v2.py --------------------------------------------------------------------------


def test_the_v2_runner_takes_a_models_own_state_and_sampler() -> None:
    from vllm.v1.worker.gpu import model_states
    from vllm.v1.worker.gpu.model_states.interface import ModelState

    assert "get_model_state_cls" in inspect.getsource(model_states)
    assert parameters(ModelState.custom_sampler) == ["self", "sampler"]
    assert parameters(ModelState.prepare_inputs) == ["self", "input_batch", "req_states"]


def test_the_v2_runner_asks_of_a_sampler_what_ours_has() -> None:
    from vllm.v1.worker.gpu import model_runner

    source = inspect.getsource(model_runner)
    assert "self.model_state.custom_sampler(self.sampler)" in source
    assert "self.sampler.penalties_state.output_bin_counts" in source
    assert "self.sampler.apply_staged_writes()" in source
    assert "self.sampler(logits, input_batch)" in source
    assert "self.model_state.prepare_inputs(input_batch, self.req_states)" in source
    # Ids leave for the host after everything on the main stream: our copies to shared memory too.
    from vllm.v1.worker.gpu import async_utils

    assert "copy_stream.wait_stream(main_stream)" in inspect.getsource(async_utils)


def test_the_v2_request_states_have_what_the_sampler_reads() -> None:
    from vllm.v1.worker.gpu import states

    source = inspect.getsource(states.RequestState)
    for attribute in ("all_token_ids", "total_len", "prefill_len", "max_num_reqs"):
        assert f"self.{attribute} =" in source, f"runners/v2.py reads req_states.{attribute}"


def test_the_v2_helpers_keep_their_signatures() -> None:
    from vllm.v1.worker.gpu.input_batch import get_num_sampled_and_rejected
    from vllm.v1.worker.gpu.sample.output import SamplerOutput

    assert parameters(get_num_sampled_and_rejected) == [
        "num_sampled",
        "seq_lens",
        "cu_num_logits",
        "idx_mapping",
        "prefill_len",
    ]
    fields = {"sampled_token_ids", "logprobs_tensors", "num_nans", "num_sampled", "num_rejected"}
    assert fields <= set(SamplerOutput.__dataclass_fields__)


# -- engine/model.py -------------------------------------------------------------------------------


def test_the_llama_embeds_through_the_attribute_we_replace() -> None:
    from vllm.model_executor.models.llama import LlamaForCausalLM, LlamaModel

    assert "self.embed_tokens(input_ids)" in source_of(LlamaModel.embed_input_ids)
    assert "self.embed_input_ids(input_ids)" in source_of(LlamaModel.forward)
    assert parameters(LlamaForCausalLM.compute_logits) == ["self", "hidden_states"]


# -- engine/language_model.py ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "option",
    [
        "model",
        "skip_tokenizer_init",
        "generation_config",
        "dtype",
        "block_size",
        "max_num_seqs",
        "max_model_len",
        "max_num_batched_tokens",
        "kv_cache_memory_bytes",
        "gpu_memory_utilization",
        "enforce_eager",
        "enable_prefix_caching",
        "scheduling_policy",
        "stream_interval",
        "disable_log_stats",
        "use_tqdm_on_load",
        "distributed_executor_backend",
        "worker_cls",
        "compilation_config",
    ],
)
def test_the_engine_takes_the_options_we_give(option: str) -> None:
    assert option in parameters(AsyncEngineArgs), f"language_model.py sets {option}"


def test_the_client_has_what_failing_and_watching_need() -> None:
    from vllm.v1.engine.core_client import BackgroundResources
    from vllm.v1.engine.output_processor import OutputProcessor
    from vllm.v1.engine.utils import CoreEngineProcManager

    assert "engine_manager" in BackgroundResources.__dataclass_fields__
    assert "self.processes" in source_of(CoreEngineProcManager.__init__)
    assert parameters(OutputProcessor.propagate_error) == ["self", "e"]
    assert "timeout" in parameters(AsyncLLM.shutdown)
    assert "self.output_handler" in source_of(AsyncLLM._run_output_handler)


def test_engine_processes_come_from_the_context_we_replace() -> None:
    from vllm.v1.engine import utils

    source = source_of(utils.CoreEngineProcManager.__init__)
    assert "context = get_mp_context()" in source, "runners/launch.py replaces it in this module"
    assert "context.Process(" in source
    assert callable(utils.get_mp_context)


def test_kernel_overrides_are_registered_by_what_the_fork_server_runs_ahead() -> None:
    from vllm.platforms.cpu import CpuPlatform
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    assert inspect.signature(CpuPlatform.register_triton_kernel_overrides).parameters == {}
    assert "current_platform.register_triton_kernel_overrides()" in source_of(
        WorkerWrapperBase.init_worker
    ), "runners/preload.py has it done once"


def test_vector_instructions_are_tried_once_a_process() -> None:
    from torch._inductor import cpu_vec_isa

    assert callable(cpu_vec_isa.valid_vec_isa_list.cache_info), (
        "runners/preload_compiler.py fills this cache"
    )
    assert "valid_vec_isa_list()" in source_of(cpu_vec_isa.pick_vec_isa)


def test_generate_takes_rendered_tokens_a_priority_and_aborts_when_closed() -> None:
    from vllm.inputs.engine import tokens_input

    assert tokens_input([1, 2], cache_salt="x") == {
        "type": "token",
        "prompt_token_ids": [1, 2],
        "cache_salt": "x",
    }
    assert "priority" in parameters(AsyncLLM.generate)
    source = source_of(AsyncLLM.generate)
    assert "except (asyncio.CancelledError, GeneratorExit)" in source
    assert "await self.abort(" in source


def test_statistics_have_the_fields_we_report() -> None:
    from vllm.v1.metrics.loggers import StatLoggerBase
    from vllm.v1.metrics.stats import IterationStats, SchedulerStats

    stats = SchedulerStats()
    assert (stats.num_running_reqs, stats.num_waiting_reqs, stats.kv_cache_usage) == (0, 0, 0.0)
    assert stats.prefix_cache_stats.queries == stats.prefix_cache_stats.hits == 0
    assert IterationStats().num_preempted_reqs == 0
    assert parameters(StatLoggerBase.record)[:3] == ["self", "scheduler_stats", "iteration_stats"]


def test_packed_parameters_pass_vllms_checks() -> None:
    from engine.batch import EXTRA_ARGS_KEY, RequestParams

    packed = RequestParams(seed=-(2**63), top_k=626, text=True, oldest=2**31 - 1)
    params = SamplingParams(extra_args={EXTRA_ARGS_KEY: list(packed)})
    assert RequestParams.from_extra_args(params.extra_args) == packed


def test_resting_requests_can_be_hidden_from_the_scheduler() -> None:
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler

    source = source_of(Scheduler.schedule)
    assert "if num_running >= self.max_num_active_reqs:" in source
    assert "len(self.running) <= self.max_num_running_reqs" in source
    assert "self.running.append(request)" in source
    assert issubclass(AsyncScheduler, Scheduler)
    assert "schedule" not in vars(AsyncScheduler)
    assert isinstance(KVCacheManager.usage, property)


def test_the_scheduler_is_paced_whichever_vllm_would_take() -> None:
    from vllm.config import SchedulerConfig

    from engine.scheduler import PacedScheduler

    config = SchedulerConfig.default_factory(scheduler_cls="engine.scheduler.PacedScheduler")
    assert config.get_scheduler_cls() is PacedScheduler


def test_one_running_request_can_have_its_own_stream_interval() -> None:
    from vllm.v1.engine.output_processor import OutputProcessor, RequestState

    source = source_of(RequestState.make_request_output)
    assert "if self.stream_interval > 1:" in source
    assert "self.detokenizer.output_token_ids[self.sent_tokens_offset:]" in "".join(source.split())
    assert "self.sent_tokens_offset = self.detokenizer.num_output_tokens()" in source
    source = source_of(OutputProcessor.add_request)
    assert "self.external_req_ids[req_state.external_req_id].append(request_id)" in source
    assert "self.request_states[request_id] = req_state" in source
