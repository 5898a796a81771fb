"""What each feature is worth: all on, then one after the other off, in turns.

    python -m bench.features --json docs/benchmarks/features-cpu.json

Stops within its budget and goes on from there when called again; see `bench.variants`. On a GPU:
`python -m bench.gpu_slice --parts features`.
"""

from __future__ import annotations

import sys

from bench import variants
from bench.tuned import Tuning

FEATURES = {
    "all on": Tuning(),
    "no prefix cache": Tuning(vllm={"enable_prefix_caching": False}),
    "no continuous batching": Tuning(vllm={"max_num_seqs": 1}),
    # Without chunks vLLM wants room for the longest prompt in one step.
    "no chunked prefill": Tuning(
        vllm={"enable_chunked_prefill": False, "max_num_batched_tokens": 2048}
    ),
    "no compilation": Tuning(engine={"compiled": False}),
    "no priorities": Tuning(vllm={"scheduling_policy": "fcfs"}),
    "no resting of those ahead": Tuning(vllm={"scheduler_cls": None}),
    "no holding of those ahead": Tuning(serve=("--hold-lead-seconds", "3600")),
    "no int8 weights": Tuning(engine={"quantization": "none"}),
}
"""By what the table calls them."""


def main() -> int:
    arguments = variants.parser("bench.features", __doc__ or "")
    return variants.compare("features", FEATURES, arguments.parse_args())


if __name__ == "__main__":
    sys.exit(main())
