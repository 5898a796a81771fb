from __future__ import annotations

from pathlib import Path

from training import loss_log


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    assert loss_log.read(tmp_path) == []
    loss_log.append(tmp_path, {"step": 1.0, "train": 0.123456}, digits=4)
    loss_log.append(tmp_path, {"step": 2.0, "train": 0.1}, digits=4)
    assert loss_log.read(tmp_path) == [
        {"step": "1.0", "train": "0.1235"},
        {"step": "2.0", "train": "0.1"},
    ]
