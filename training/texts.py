"""Corpora to phonemes: `python -m training.texts CORPUS_DIR OUT_DIR`.

CORPUS_DIR holds text files named `en_*.txt` and `zh_*.txt`, one sentence a line (see
training/README.md for corpora that may be used and their licences). Writes `en.jsonl` and
`zh.jsonl` with the phonemes of the product's own front end; with `--held-out` those of the
held-out `test_en.txt` and `test_zh.txt` instead.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tqdm import tqdm

from engine.frontend.english import English
from engine.frontend.mandarin import Mandarin

LONGEST = 260
"""Phoneme symbols of the longest sentence kept: about 15 seconds of speech."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("corpus", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--held-out", action="store_true")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for language, front_end in (("en", English()), ("zh", Mandarin())):
        kept = 0
        with (args.out / f"{language}.jsonl").open("w", encoding="utf-8") as out:
            for source in sorted(
                args.corpus.glob(f"test_{language}.txt" if args.held_out else f"{language}_*.txt")
            ):
                lines = source.read_text("utf-8").splitlines()
                for number, line in enumerate(tqdm(lines, desc=source.name)):
                    spoken = front_end.phonemes(line.strip()).strip()
                    if not 2 <= len(spoken) <= LONGEST:
                        continue
                    record = {"id": f"{source.stem}-{number}", "text": line, "phonemes": spoken}
                    out.write(json.dumps(record, ensure_ascii=False) + "\n")
                    kept += 1
        print(f"{language}: {kept} sentences")


if __name__ == "__main__":
    main()
