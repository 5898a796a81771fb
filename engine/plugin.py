"""Entry point `vllm.general_plugins`: every vLLM process learns the architecture."""

from __future__ import annotations

from engine.lm_config import ARCHITECTURE


def register() -> None:
    """Register the language model by name; it is imported only when a checkpoint asks for it."""
    from vllm import ModelRegistry

    ModelRegistry.register_model(ARCHITECTURE, "engine.model:VoxgateForCausalLM")
