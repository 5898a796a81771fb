"""`voxgate serve` with a scripted engine that takes its time: as long as speech takes to say, made
`VOXGATE_SCRIPTED_PACE` times as fast as it is heard (3 if not said).

    python serve_scripted.py serve ARGUMENTS...
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "gateway"))

from fake_engine import FakeSynthesizer, Script

from engine.api import SAMPLE_RATE, SpeechRequest
from gateway.cli import main
from gateway.commands import serve

PACE = float(os.environ.pop("VOXGATE_SCRIPTED_PACE", "3"))
CHUNK = 2048


def script(request: SpeechRequest, _number: int) -> Script:
    samples = max(CHUNK, int(len(request.text) / 14 * SAMPLE_RATE))
    return Script(samples=samples, chunk=CHUNK, delay=CHUNK / SAMPLE_RATE / PACE)


if __name__ == "__main__":
    serve.engine_factory = lambda _: lambda: FakeSynthesizer(script)
    sys.exit(main(sys.argv[1:]))
