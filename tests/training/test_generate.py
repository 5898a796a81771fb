"""Teacher speech: what is made, when its phonemes are said, and going on after a stop."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from training.audio_store import read_shard
from training.generate import Job, Task, fill, tasks
from training.teachers import LATE_SAMPLES, Speech, load, symbol_edges

WORDS = ["həlˈO", "wˈɜɹld", "ɡˈʊd"]


class Buzzer:
    """A teacher that takes 50 ms for a symbol."""

    voices = ("one", "two")
    languages = ("en",)
    said: list[str]

    def __init__(self) -> None:
        self.said = []

    def speak(self, phonemes: str, voice: str, speed: float, seed: int) -> Speech:
        self.said.append(phonemes)
        lengths = [1.0] * (len(phonemes) + 2)
        wave = np.full(1200 * len(lengths), 0.5, np.float32)
        return Speech(wave, symbol_edges(phonemes, dict.fromkeys(phonemes, 1), lengths, len(wave)))


@pytest.fixture
def job(tmp_path: Path) -> Job:
    lines = [json.dumps({"id": f"t{n}", "phonemes": word}) for n, word in enumerate(WORDS)]
    (tmp_path / "en.jsonl").write_text("\n".join(lines), "utf-8")
    return Job(tmp_path, tmp_path / "out", "hibari", (), 0, 1, 0.01, 60, seed=1)


def first(job: Job, count: int) -> list[Task]:
    drawn = tasks(job, ("one", "two"), ("en",))
    return [next(drawn) for _ in range(count)]


def test_a_stop_changes_nothing_of_what_is_made(job: Job) -> None:
    whole, parts = Buzzer(), Buzzer()
    fill(Job(job.texts, job.out / "a", "hibari", (), 0, 1, 0.01, 60, 1), whole)
    for hours in (0.003, 0.01):
        fill(Job(job.texts, job.out / "b", "hibari", (), 0, 1, hours, 60, 1), parts)
    assert whole.said == parts.said
    a, b = (list(read_shard(job.out / name / "hibari-000")) for name in "ab")
    assert a == b
    assert sum(u.samples for u in a) >= 0.01 * 3600 * 24_000


def test_held_out_sets_are_spoken_once_by_every_voice(job: Job) -> None:
    each = Job(job.texts, job.out, "hibari", (), 0, 1, 99, 60, 1, each=True)
    teacher = Buzzer()
    fill(each, teacher)
    assert sorted(teacher.said) == sorted(WORDS * 2)
    assert {u.speed for u in read_shard(job.out / "hibari-000")} == {2}


def test_voices_and_speeds_depend_on_the_seed_alone(job: Job) -> None:
    assert first(job, 20) == first(job, 20)
    other = Job(job.texts, job.out, "hibari", (), 0, 1, 0.01, 60, seed=2)
    assert first(job, 20) != first(other, 20)


def test_edges_follow_the_cut(job: Job) -> None:
    fill(job, Buzzer())
    for utterance in read_shard(job.out / "hibari-000"):
        edges = utterance.edges
        assert len(edges) == len(utterance.phonemes) + 1
        assert edges == sorted(edges)
        assert edges[-1] <= utterance.samples
        assert set(np.diff(edges[1:-1])) == {1200}


def test_symbols_the_teacher_does_not_know_have_no_length() -> None:
    edges = symbol_edges("a?b", {"a": 1, "b": 2}, [2, 3, 5, 1], 11_000)
    told = [edge + LATE_SAMPLES for edge in edges]
    assert told == [2000, 5000, 5000, 10_000]


def test_hibari_tells_when_it_says_what() -> None:
    teacher = load("hibari")
    phonemes = "sˈi ðə sˈi."
    speech = teacher.speak(phonemes, "heart", 1.0, 0)
    assert len(speech.edges) == len(phonemes) + 1
    # Hiss crosses zero far more often than a vowel.
    crossing = np.abs(np.diff(np.signbit(speech.wave).astype(int)))

    def rate(symbol: int) -> float:
        start, end = speech.edges[symbol : symbol + 2]
        return float(crossing[start:end].mean())

    assert rate(0) > 3 * rate(2)
    assert rate(7) > 3 * rate(9)
