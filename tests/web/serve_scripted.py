"""`voxgate` with a scripted engine, for tests of timing and faults.

    python serve_scripted.py serve --port N

The text of a piece says how it goes: `short` is 20 ms of a tone, `long` four seconds in real time,
`dry` stops in its middle for a while; everything else takes a second at ten times real time.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "gateway"))

from fake_engine import FakeSynthesizer, Script

from engine.api import SAMPLE_RATE, SpeechRequest
from gateway.cli import main
from gateway.commands import serve


def script(request: SpeechRequest, _number: int) -> Script:
    text = request.text.lower()
    if "short" in text:
        return Script(samples=480, chunk=480)
    if "long" in text:
        return Script(samples=4 * SAMPLE_RATE, chunk=2400, delay=0.08)
    if "dry" in text:
        return Script(samples=SAMPLE_RATE, chunk=SAMPLE_RATE // 2, delay=0.9)
    return Script(samples=SAMPLE_RATE, chunk=2400, delay=0.01)


if __name__ == "__main__":
    serve.engine_factory = lambda _arguments: lambda: FakeSynthesizer(script)
    sys.exit(main(sys.argv[1:]))
