"""`voxgate serve` with a scripted engine that takes its time: as long as speech takes to say, made
`VOXGATE_SCRIPTED_PACE` times as fast as it is heard (3 if not said), up to
`VOXGATE_SCRIPTED_STREAMS` at once.

    python serve_scripted.py serve ARGUMENTS...

While the file `VOXGATE_SCRIPTED_FAULT` exists, every piece but the readiness check's fails.
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
FAULT = Path(os.environ.pop("VOXGATE_SCRIPTED_FAULT", "/nowhere"))
STREAMS = float(os.environ.pop("VOXGATE_SCRIPTED_STREAMS", "1000"))
CHUNK = 2048


def make() -> FakeSynthesizer:
    def script(request: SpeechRequest, _number: int) -> Script:
        samples = max(CHUNK, int(len(request.text) / 14 * SAMPLE_RATE))
        # Beyond so many streams all become slower, as in an engine whose steps grow.
        share = max(1.0, engine.running / STREAMS)
        script = Script(samples=samples, chunk=CHUNK, delay=CHUNK / SAMPLE_RATE / PACE * share)
        if FAULT.exists():
            script.fail_after, script.error = 0, RuntimeError("a scripted fault")
        return script

    engine = FakeSynthesizer(script)
    # The word of the readiness check takes its time as well: capacity is measured by it first.
    engine.probe = Script(samples=4 * CHUNK, chunk=CHUNK, delay=CHUNK / SAMPLE_RATE / PACE)
    return engine


if __name__ == "__main__":
    serve.engine_factory = lambda _: make
    sys.exit(main(sys.argv[1:]))
