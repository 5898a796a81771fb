"""The speech engine of this installation, and what to say when it is not there."""

from __future__ import annotations

import importlib.util
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path

from engine.api import Synthesizer
from gateway.commands.console import CommandError

EMBEDDED = "mini"


def add_engine_options(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("engine")
    group.add_argument(
        "--checkpoint",
        metavar="DIR",
        default=EMBEDDED,
        help="a ChatTTS release directory or a packed voice; default: the embedded voice (mini)",
    )
    group.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), default="auto", help="default: auto"
    )
    group.add_argument(
        "--max-streams", metavar="N", type=int, help="pieces the model makes at once"
    )
    group.add_argument(
        "--kv-cache-mib", metavar="N", type=int, help="memory of the prefix and attention cache"
    )
    group.add_argument(
        "--random-voices",
        metavar="N",
        type=int,
        default=0,
        help="speakers drawn at random, for a ChatTTS release",
    )
    group.add_argument(
        "--eager",
        action="store_true",
        help="do not compile the model: starts faster, speaks slower",
    )


def engine_installed() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("vllm", "torch"))


def engine_factory(arguments: Namespace) -> Callable[[], Synthesizer]:
    """Makes the engine these options ask for. Raises `CommandError` when there is none."""
    if not engine_installed():
        raise CommandError(
            "The speech engine is not installed here. In a clone of Voxgate: make setup. "
            "With a GPU: pip install 'voxgate[cuda]'. "
            'To speak through a gateway elsewhere: voxgate say --url ws://HOST:8080 "Hello"'
        )
    checkpoint = None if arguments.checkpoint == EMBEDDED else Path(arguments.checkpoint)
    if checkpoint is not None and not checkpoint.is_dir():
        raise CommandError(f"--checkpoint {checkpoint}: there is no such directory.")

    def create() -> Synthesizer:
        from engine import ahead
        from engine.settings import EngineSettings

        settings = EngineSettings(
            checkpoint=checkpoint,
            device=arguments.device,
            max_streams=arguments.max_streams,
            kv_cache_bytes=arguments.kv_cache_mib and arguments.kv_cache_mib * 2**20,
            compiled=False if arguments.eager else None,
            seed_voices=arguments.random_voices,
        )
        ahead.begin(settings)
        from engine.synthesizer import create as create_synthesizer

        return create_synthesizer(settings)

    return create
