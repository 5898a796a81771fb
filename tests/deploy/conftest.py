"""What checks deploy/ needs real programs: scripts/deploy_tools.py brings them."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_PRODUCTION = ROOT / "tests" / "production"
sys.path[:0] = [str(_PRODUCTION), str(ROOT / "tests" / "gateway")]
_spec = importlib.util.spec_from_file_location("production_conftest", _PRODUCTION / "conftest.py")
assert _spec is not None
assert _spec.loader is not None
_shared = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_shared)
event_loop_policy = _shared.event_loop_policy
run = _shared.run


@pytest.fixture(scope="session")
def tools() -> Path:
    """The folder of nginx, promtool, kubectl, hadolint and a Python with the schemas."""
    script = ROOT / "scripts" / "deploy_tools.py"
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())
