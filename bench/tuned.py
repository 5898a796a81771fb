"""A gateway with something changed in it that no operator can change, to see what that is worth.

    python -m bench.tuned '{"vllm": {"enable_prefix_caching": false}}' --port 8080

The rest of the command line is that of `voxgate serve`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from bench.gateway_process import GatewayProcess


@dataclass(frozen=True, slots=True)
class Tuning:
    """What differs from the product as it ships; empty: nothing."""

    vllm: Mapping[str, Any] = field(default_factory=dict)
    """Engine arguments of vLLM."""
    engine: Mapping[str, Any] = field(default_factory=dict)
    """Of `engine.settings.EngineSettings`."""
    chunks: Mapping[str, Any] = field(default_factory=dict)
    """Of `engine.chunking.ChunkPolicy`."""
    lengths: Mapping[str, Any] = field(default_factory=dict)
    """Of `gateway.cutting.Lengths`."""
    context_pieces: int | None = None
    """Earlier pieces that the embedded voice continues, at most."""
    serve: Sequence[str] = ()
    """Arguments of `voxgate serve`."""


class TunedGateway(GatewayProcess):
    """`voxgate serve` with `tuning`."""

    def __init__(self, tuning: Tuning, arguments: Sequence[str] = ()) -> None:
        super().__init__([*tuning.serve, *arguments])
        self.command = (sys.executable, "-m", "bench.tuned", json.dumps(asdict(tuning)))


def apply(tuning: Tuning) -> None:
    """Change this process before its engine is made."""
    import engine.settings
    from engine import synthesizer
    from engine.checkpoints import mini
    from engine.chunking import ChunkPolicy
    from engine.settings import EngineSettings
    from gateway import app
    from gateway.cutting import Lengths

    shipped = EngineSettings

    def changed(**given: Any) -> EngineSettings:
        return shipped(**{**given, **tuning.engine, "vllm": tuning.vllm})

    vars(engine.settings)["EngineSettings"] = changed
    vars(synthesizer)["ChunkPolicy"] = partial(ChunkPolicy, **tuning.chunks)
    vars(app)["Lengths"] = partial(Lengths, **tuning.lengths)
    if tuning.context_pieces is not None:
        vars(mini)["MAX_CONTEXT_PIECES"] = tuning.context_pieces
        if not tuning.context_pieces:
            vars(mini)["_usable"] = lambda _context, _voice: ()


def main() -> int:
    from gateway.cli import main as voxgate

    apply(Tuning(**json.loads(sys.argv[1])))
    return voxgate(["serve", *sys.argv[2:]])


if __name__ == "__main__":
    sys.exit(main())
