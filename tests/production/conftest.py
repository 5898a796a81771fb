"""The fixtures of tests/gateway: a real gateway on a real port, with a scripted engine."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

_GATEWAY = Path(__file__).parents[1] / "gateway"
sys.path[:0] = [str(Path(__file__).parent), str(_GATEWAY)]
if "gateway_conftest" not in sys.modules:
    _spec = importlib.util.spec_from_file_location("gateway_conftest", _GATEWAY / "conftest.py")
    assert _spec is not None
    assert _spec.loader is not None
    _shared = importlib.util.module_from_spec(_spec)
    sys.modules["gateway_conftest"] = _shared
    _spec.loader.exec_module(_shared)
event_loop_policy = sys.modules["gateway_conftest"].event_loop_policy
run = sys.modules["gateway_conftest"].run
