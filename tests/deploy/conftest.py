"""What checks deploy/ needs real programs: scripts/deploy_tools.py brings them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / "production"), str(ROOT / "tests" / "gateway")]


@pytest.fixture(scope="session")
def tools() -> Path:
    """The folder of nginx, promtool, kubectl, hadolint and a Python with the schemas."""
    script = ROOT / "scripts" / "deploy_tools.py"
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())
