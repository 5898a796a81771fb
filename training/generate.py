"""Teacher speech: `python -m training.generate TEXTS OUT --teacher hibari --workers 4 --hours 5`.

TEXTS is the folder `training.texts` wrote. Every worker appends to its own shard in OUT and goes on
where it stopped; sentences, voices and speeds depend on the worker's number alone.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import time
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from training import teachers
from training.audio_store import SAMPLE_RATE, ShardWriter, read_shard
from training.onset import trim

MANDARIN_SHARE = 0.7
"""Of the sentences of a teacher that speaks both languages."""


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


def work(job: Job) -> None:
    """Fill one shard until it has its hours or the time is over."""
    os.environ["OMP_NUM_THREADS"] = "1"
    began = time.monotonic()
    teacher = teachers.load(job.teacher)
    voices = job.voices or teacher.voices
    sentences = {
        language: [
            json.loads(line)
            for line in (job.texts / f"{language}.jsonl").read_text("utf-8").splitlines()
        ][job.worker :: job.workers]
        for language in teacher.languages
    }
    draw = random.Random(f"{job.seed}-{job.teacher}-{job.worker}")
    for pool in sentences.values():
        draw.shuffle(pool)
    at = dict.fromkeys(sentences, 0)
    path = job.out / f"{job.teacher}-{job.worker:03d}"
    made = sum(u.samples for u in read_shard(path))
    with ShardWriter(path) as shard:
        resume_from = shard.done
        spoken = 0
        while made < job.hours * 3600 * SAMPLE_RATE and time.monotonic() - began < job.seconds:
            both = len(sentences) > 1
            language = (
                ("zh" if draw.random() < MANDARIN_SHARE else "en") if both else next(iter(at))
            )
            pool = sentences[language]
            sentence = pool[at[language] % len(pool)]
            at[language] += 1
            speed = draw.choices(range(len(teachers.SPEEDS)), teachers.SPEED_SHARES)[0]
            voice, seed = draw.choice(voices), draw.randrange(1 << 30)
            spoken += 1
            if spoken <= resume_from:
                continue  # the draws of what is already there must be made all the same
            wave = trim(teacher.speak(sentence["phonemes"], voice, teachers.SPEEDS[speed], seed))
            if wave is None:
                continue
            shard.add(
                wave,
                text_id=sentence["id"],
                voice=voice,
                language=language,
                phonemes=sentence["phonemes"],
                speed=speed,
            )
            made += len(wave)


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
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--hours", type=float, default=10.0, help="in all")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this long")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(
            target=work,
            args=(
                Job(
                    args.texts,
                    args.out,
                    args.teacher,
                    tuple(args.voices),
                    worker,
                    args.workers,
                    args.hours / args.workers,
                    args.seconds,
                    args.seed,
                ),
            ),
        )
        for worker in range(args.workers)
    ]
    for process in processes:
        process.start()
    with tqdm(total=args.hours, unit="h", bar_format="{l_bar}{bar}| {n:.2f}/{total:.2f} h") as bar:
        while any(process.is_alive() for process in processes):
            time.sleep(1)
            bar.update(_hours_made(args.out, args.teacher) - bar.n)
    failed = [str(p.exitcode) for p in processes if p.exitcode]
    if failed:
        raise SystemExit(f"{len(failed)} of {len(processes)} workers failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
