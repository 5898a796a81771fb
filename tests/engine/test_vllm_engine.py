"""What is looked at before an engine process is started."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from engine.vllm_engine import need_room


def test_full_shared_memory_is_told_with_a_way_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    need_room(tmp_path)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=1 << 20))
    with pytest.raises(OSError, match="--shm-size") as full:
        need_room(tmp_path)
    assert full.value.errno == errno.ENOSPC
    assert full.value.filename is None


def test_a_system_without_that_folder_is_not_held_up(tmp_path: Path) -> None:
    need_room(tmp_path / "nowhere")
