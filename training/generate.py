"""Teacher speech: `python -m training.generate TEXTS OUT --teacher hibari --workers 4 --hours 5`.

TEXTS is the folder `training.texts` wrote. Every worker appends to its own shard in OUT and goes on
where it stopped; sentences, voices and speeds depend on the seed and the worker's number alone. On
a GPU (`--device cuda`, Kokoro only) a process has several workers that share its model, each on a
stream of its own. With `--each` every sentence is spoken once by every voice at normal speed, as
held-out sets are.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from training import teachers
from training.audio_store import SAMPLE_RATE, ShardWriter, read_shard
from training.onset import trim

MANDARIN_SHARE = 0.7
"""Of the sentences of a teacher that speaks both languages."""
NORMAL_SPEED = teachers.SPEEDS.index(1.0)


@dataclass(frozen=True, slots=True)
class Job:
    """What one worker makes."""

    texts: Path
    out: Path
    teacher: str
    voices: tuple[str, ...]
    worker: int
    workers: int
    hours: float
    seconds: float
    seed: int
    device: str = "cpu"
    each: bool = False
    mandarin_share: float = MANDARIN_SHARE


class Task(NamedTuple):
    """One utterance to make; `speed` is an index."""

    language: str
    sentence: dict[str, Any]
    voice: str
    speed: int
    seed: int


def tasks(job: Job, voices: Sequence[str], languages: Sequence[str]) -> Iterator[Task]:
    """What the worker is to speak, in order: endless, unless each sentence is spoken once."""
    sentences = {
        language: [
            json.loads(line)
            for line in (job.texts / f"{language}.jsonl").read_text("utf-8").splitlines()
        ][job.worker :: job.workers]
        for language in languages
    }
    if job.each:
        for language, pool in sentences.items():
            for sentence in pool:
                for voice in voices:
                    yield Task(language, sentence, voice, NORMAL_SPEED, job.seed)
        return
    draw = random.Random(f"{job.seed}-{job.teacher}-{job.worker}")
    for pool in sentences.values():
        draw.shuffle(pool)
    at = dict.fromkeys(sentences, 0)
    while True:
        language = next(iter(at))
        if len(at) > 1:
            language = "zh" if draw.random() < job.mandarin_share else "en"
        pool = sentences[language]
        sentence = pool[at[language] % len(pool)]
        at[language] += 1
        speed = draw.choices(range(len(teachers.SPEEDS)), teachers.SPEED_SHARES)[0]
        yield Task(language, sentence, draw.choice(voices), speed, draw.randrange(1 << 30))


def fill(job: Job, teacher: teachers.Teacher) -> None:
    """Fill one shard until it has its hours or the time is over."""
    began = time.monotonic()
    path = job.out / f"{job.teacher}-{job.worker:03d}"
    made = sum(u.samples for u in read_shard(path))
    with ShardWriter(path) as shard:
        resume_from, unfit = shard.done, 0
        for number, task in enumerate(tasks(job, job.voices or teacher.voices, teacher.languages)):
            if not job.each and made >= job.hours * 3600 * SAMPLE_RATE:
                break
            if time.monotonic() - began > job.seconds:
                break
            if number - unfit < resume_from:
                continue
            phonemes = task.sentence["phonemes"]
            said = teacher.speak(phonemes, task.voice, teachers.SPEEDS[task.speed], task.seed)
            trimmed = trim(said.wave)
            if trimmed is None:
                unfit += 1
                continue
            samples = len(trimmed.wave)
            shard.add(
                trimmed.wave,
                text_id=task.sentence["id"],
                voice=task.voice,
                language=task.language,
                phonemes=phonemes,
                speed=task.speed,
                edges=[min(max(0, edge - trimmed.before), samples) for edge in said.edges],
            )
            made += samples


def work(jobs: Sequence[Job]) -> None:
    """One process: a model, and a thread for every worker."""
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    torch.set_num_threads(1)
    teacher = teachers.load(jobs[0].teacher, jobs[0].device)
    failed: list[BaseException] = []

    def guarded(job: Job) -> None:
        try:
            fill(job, teacher)
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def _hours_made(out: Path, teacher: str) -> float:
    shards = out.glob(f"{teacher}-*.pcm")
    return sum(shard.stat().st_size for shard in shards) / 2 / SAMPLE_RATE / 3600


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("texts", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--teacher", required=True, choices=["hibari", "kokoro"])
    parser.add_argument("--voices", nargs="*", default=[], help="default: all of the teacher's")
    parser.add_argument("--device", default="cpu", help="cuda: Kokoro on a GPU")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--threads", type=int, default=1, help="workers of one process")
    parser.add_argument("--hours", type=float, default=10.0, help="in all")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this long")
    parser.add_argument("--mandarin-share", type=float, default=MANDARIN_SHARE)
    parser.add_argument("--each", action="store_true", help="each sentence once by every voice")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    first = Job(
        args.texts, args.out, args.teacher, tuple(args.voices), 0, args.workers,
        args.hours / args.workers, args.seconds, args.seed, args.device, args.each,
        args.mandarin_share,
    )  # fmt: skip
    jobs = [replace(first, worker=worker) for worker in range(args.workers)]
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=work, args=(jobs[start : start + args.threads],))
        for start in range(0, len(jobs), args.threads)
    ]
    for process in processes:
        process.start()
    with tqdm(total=args.hours, unit="h", bar_format="{l_bar}{bar}| {n:.2f}/{total:.2f} h") as bar:
        while any(process.is_alive() for process in processes):
            time.sleep(1)
            bar.update(_hours_made(args.out, args.teacher) - bar.n)
    failed = [str(p.exitcode) for p in processes if p.exitcode]
    if failed:
        raise SystemExit(f"{len(failed)} of {len(processes)} processes failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
