"""`voxgate voices add` writes what the engine's own reader takes."""

from __future__ import annotations

import json
import wave
from pathlib import Path

import numpy as np
import pytest

from engine.checkpoints.chattts_layout import Sizes
from engine.checkpoints.chattts_voices import read_voices
from engine.checkpoints.speaker_vectors import encode_vector
from gateway.cli import main


@pytest.fixture
def release(tmp_path: Path) -> Path:
    (tmp_path / "asset").mkdir()
    return tmp_path


def recording(path: Path, seconds: float = 2.0, rate: int = 24_000) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, rate, 0, "NONE", ""))
        file.writeframes((np.sin(np.arange(int(seconds * rate))) * 9000).astype("<i2").tobytes())
    return path


def test_a_speaker_string_becomes_a_voice(release: Path) -> None:
    vector = np.random.default_rng(1).standard_normal(768).astype(np.float32)
    add = ["voices", "add", "anna", "--checkpoint", str(release)]
    assert main([*add, "--speaker", encode_vector(vector), "--language", "en"]) == 0
    [voice], problems = read_voices(release, Sizes())
    assert problems == []
    assert (voice.card.id, voice.card.languages) == ("anna", ("en",))
    assert voice.vector is not None
    np.testing.assert_allclose(voice.vector, vector, rtol=1e-2, atol=1e-2)


def test_a_recording_becomes_a_voice_beside_others(release: Path) -> None:
    audio = recording(release / "sample.wav")
    (release / "voices.json").write_text('{"old": {}}')
    add = ["voices", "add", "bao", "--checkpoint", str(release), "--audio", str(audio)]
    assert main([*add, "--text", "What it says."]) == 0
    voices, problems = read_voices(release, Sizes())
    assert problems == []
    assert [voice.card.id for voice in voices] == ["old", "bao"]
    reference = voices[1].reference
    assert reference is not None
    assert reference.text == "What it says."
    assert reference.recording is not None
    assert reference.recording.size == 48_000


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["anna", "--speaker", "short"], "no speaker string"),
        (["an na", "--speaker", "x" * 100], "An id has letters"),
        (["anna", "--audio", "good.wav"], "needs --text"),
        (["anna", "--audio", "fast.wav", "--text", "x"], "ffmpeg -i"),
        (["anna", "--audio", "long.wav", "--text", "x"], "30.0 s"),
        (["anna", "--audio", "voices.json", "--text", "x"], "no WAV file"),
        (["old", "--speaker", "x" * 100], "--replace"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_changes(
    release: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(release)
    (release / "voices.json").write_text('{"old": {}}')
    recording(release / "good.wav")
    recording(release / "fast.wav", rate=44_100)
    recording(release / "long.wav", seconds=30)
    assert main(["voices", "add", *options, "--checkpoint", "."]) == 1
    assert words in " ".join(capsys.readouterr().err.split())
    assert json.loads((release / "voices.json").read_text()) == {"old": {}}


def test_the_embedded_voice_takes_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add = ["voices", "add", "anna", "--checkpoint", str(tmp_path), "--speaker", "x" * 100]
    assert main(add) == 1
    assert "takes no others" in " ".join(capsys.readouterr().err.split())
