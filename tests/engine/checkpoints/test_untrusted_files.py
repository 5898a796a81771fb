"""Files of a checkpoint run nothing."""

from __future__ import annotations

import os
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.checkpoints.chattts_layout import Sizes
from engine.checkpoints.chattts_voices import read_statistics, read_voices

ROOT = Path(__file__).parents[3]


class Evil:
    """What runs a command when it is unpickled."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> Any:
        return os.system, (self.command,)


def evil(path: Path, form: str) -> Path:
    """Writes `path` so that reading it carelessly makes the file `<path>.ran`; returns that."""
    ran = path.with_suffix(".ran")
    trap = Evil(f"touch {ran}")
    if form == "torch":
        torch.save({"vector": trap}, path)
    elif form == "pickle":
        path.write_bytes(pickle.dumps(trap, protocol=2))
    else:
        with path.open("wb") as file:
            np.save(file, np.array([trap], dtype=object), allow_pickle=True)
    return ran


def test_the_traps_work(tmp_path: Path) -> None:
    ran = evil(tmp_path / "x.pt", "pickle")
    pickle.loads((tmp_path / "x.pt").read_bytes())
    assert ran.exists()
    ran = evil(tmp_path / "y.pt", "torch")
    torch.load(tmp_path / "y.pt", weights_only=False)
    assert ran.exists()


@pytest.mark.parametrize(
    ("name", "form"), [("a.pt", "torch"), ("a.pt", "pickle"), ("a.npy", "numpy"), ("a.pt", "numpy")]
)
def test_a_voice_runs_nothing_and_is_named(tmp_path: Path, name: str, form: str) -> None:
    ran = evil(tmp_path / name, form)
    (tmp_path / "voices.json").write_text(f'{{"anna": {{"speaker_file": "{name}"}}}}')
    voices, [problem] = read_voices(tmp_path, Sizes())
    assert voices == []
    assert "voice 'anna'" in problem
    assert not ran.exists()


@pytest.mark.parametrize("form", ["torch", "pickle"])
def test_nor_do_speaker_statistics(tmp_path: Path, form: str) -> None:
    (tmp_path / "asset").mkdir()
    ran = evil(tmp_path / "asset" / "spk_stat.pt", form)
    with pytest.raises(ValueError, match="holds no tensor"):
        read_statistics(tmp_path, Sizes())
    assert not ran.exists()


@pytest.mark.parametrize("package", ["engine", "gateway"])
def test_nothing_else_unpickles(package: str) -> None:
    careless = re.compile(
        r"pickle\.loads?\(|allow_pickle=True|weights_only=False|torch\.load\((?!.*weights_only=True)"
        r"|yaml\.load\(|\beval\([^)]|\bexec\([^)]|shell=True"
    )
    for path in (ROOT / package).rglob("*.py"):
        for line in path.read_text(encoding="utf-8").splitlines():
            assert not careless.search(line), f"{path}: {line}"
