"""A cheaper language model from the voice's own: `python -m training.distil TEXTS OUT`.

TEXTS is what `training.texts` wrote. The packed model speaks them (`training.own_speech`), then a
model with fewer heads of keys and values learns to give the same distributions: no recordings and
no teacher speech are needed. Most of what a step of many streams reads are keys and values. Writes
what `training.language_model` writes, and OUT/own_speech.npz, from which a stopped run goes on.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from training import own_speech
from training.language_model import Trainer
from training.lm_model import LanguageModel
from training.lm_sequences import Sentence, Settings, Voiced

STORE = "own_speech.npz"


def save(path: Path, spoken: Sequence[Sentence]) -> None:
    """Heads and codes end to end, with their lengths."""
    np.savez(
        path,
        names=np.array([(s.text_id, s.voice, s.language) for s in spoken]),
        heads=np.concatenate([s.head for s in spoken]),
        codes=np.concatenate([s.codes for s in spoken]),
        lengths=np.array([(len(s.head), len(s.codes)) for s in spoken]),
    )


def load(path: Path) -> list[Sentence]:
    """What `save` wrote."""
    with np.load(path) as stored:
        ends = stored["lengths"].cumsum(0)[:-1]
        heads = np.split(stored["heads"], ends[:, 0])
        codes = np.split(stored["codes"], ends[:, 1])
        names = stored["names"].tolist()
    return [
        Sentence(text_id, voice, language, head, own)
        for (text_id, voice, language), head, own in zip(names, heads, codes, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    root = Path(__file__).resolve().parent.parent
    parser.add_argument("texts", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--start", type=Path, default=root / "engine" / "voices" / "mini")
    parser.add_argument("--sentences", type=int, default=40_000, help="to speak")
    parser.add_argument("--kv-heads", type=int, default=2, help="of keys and values")
    parser.add_argument("--seconds", type=float, default=300.0, help="of learning")
    parser.add_argument("--workers", type=int, default=6, help="processes that make batches")
    parser.add_argument("--rate", type=float, default=8e-4, help="highest learning rate")
    parser.add_argument("--rows", type=int, default=768, help="sentences spoken at once")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cuda.matmul.allow_tf32 = True
    voiced = Voiced.read(args.start)
    teacher = LanguageModel(args.start / "lm", 0.0).to(device).eval().requires_grad_(False)
    references = own_speech.references(args.start, voiced)
    store = args.out / STORE
    if not store.exists():
        args.out.mkdir(parents=True, exist_ok=True)
        asked = own_speech.prompts(args.texts, args.start, voiced, seed=0)[: args.sentences]
        said = own_speech.speak_all(teacher, asked, references, voiced.speakers, rows=args.rows)
        save(store, list(said))
    spoken = load(store)
    print(f"{len(spoken)} sentences, {sum(len(s.codes) for s in spoken) / 46.875 / 3600:.1f} h")
    settings = Settings(rate=args.rate, dropout=0.0, noise=0.02, kv_heads=args.kv_heads)
    trainer = Trainer(
        spoken, args.out, args.start, settings, device, references=references, teacher=teacher
    )
    trainer.run(args.seconds, args.workers)


if __name__ == "__main__":
    main()
