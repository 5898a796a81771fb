"""Shards of speech survive a stop at any byte, and segments pair codes with their audio."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from training.audio_store import GAP_SAMPLES, ShardWriter, read_shard
from training.frame_store import SAMPLES_PER_FRAME, FrameSegments
from training.onset import LEAD

FACTS = {"voice": "heart", "language": "en", "phonemes": "h", "speed": 2}


def ramp(frames: int, start: int) -> np.ndarray:
    """Audio in which every frame has its own constant level."""
    levels = (start + np.arange(frames)) / 1000
    return np.repeat(levels, SAMPLES_PER_FRAME).astype(np.float32)


def write(path: Path, *frames: int) -> None:
    with ShardWriter(path) as shard:
        for number, count in enumerate(frames):
            shard.add(ramp(count, 10 * number + 1), text_id=f"t{number}", **FACTS)


def test_utterances_come_back_where_they_were_put(tmp_path: Path) -> None:
    write(tmp_path / "s", 4, 6)
    first, second = read_shard(tmp_path / "s")
    assert (first.start, first.samples) == (0, 4 * SAMPLES_PER_FRAME)
    assert second.start == 4 * SAMPLES_PER_FRAME + GAP_SAMPLES
    audio = np.fromfile(tmp_path / "s.pcm", "<i2")
    assert audio[second.start] == int(11 / 1000 * 32767)


@pytest.mark.parametrize("cut", ["audio", "line"])
def test_a_stop_in_the_middle_of_an_utterance_loses_only_that_one(tmp_path: Path, cut: str) -> None:
    write(tmp_path / "s", 4, 6)
    name = "s.pcm" if cut == "audio" else "s.jsonl"
    raw = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(raw[: -2 * GAP_SAMPLES - 100] if cut == "audio" else raw[:-20])
    assert [u.text_id for u in read_shard(tmp_path / "s")] == ["t0"]
    with ShardWriter(tmp_path / "s") as shard:
        assert shard.done == 1
        shard.add(ramp(3, 50), text_id="again", **FACTS)
    kept, again = read_shard(tmp_path / "s")
    audio = np.fromfile(tmp_path / "s.pcm", "<i2")
    assert (kept.text_id, again.text_id) == ("t0", "again")
    assert audio[again.start] == int(50 / 1000 * 32767)


def test_segments_pair_codes_with_the_audio_they_stand_for(tmp_path: Path) -> None:
    write(tmp_path / "a", 9, 12)
    write(tmp_path / "b", 10)
    for name, counts in (("a", (9, 12)), ("b", (10,))):
        levels = [10 * n + 1 + np.arange(count) for n, count in enumerate(counts)]
        codes = np.concatenate(levels)[:, None].repeat(4, 1).astype(np.int16)
        np.save(tmp_path / f"{name}.codes.npy", codes)
    segments = FrameSegments(tmp_path, torch.device("cpu"), seed=0)
    codes, audio = segments.draw(64, 8)
    levels = (audio.view(64, 8, SAMPLES_PER_FRAME).mean(-1) * 1000).round().long()
    given = codes[..., 0] == LEAD[0]
    assert torch.equal(levels[~given], codes[..., 0][~given])
    assert len({int(first) for first in levels[:, 0]}) > 3


def test_every_utterance_begins_with_the_lead(tmp_path: Path) -> None:
    write(tmp_path / "a", 9, 12)
    np.save(tmp_path / "a.codes.npy", np.ones((21, 4), np.int16))
    segments = FrameSegments(tmp_path, torch.device("cpu"), seed=0)
    codes, audio = segments.draw(16, 8, from_start=True)
    assert torch.equal(codes[:, 0], torch.tensor([LEAD] * 16))
    assert bool((codes[:, 1:] == 1).all())
    starts = {round(float(level), 3) for level in audio[:, 0]}
    assert starts == {0.001, 0.011}
