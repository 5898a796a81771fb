"""Coverage-guided fuzzing with atheris: `make fuzz`.

    python fuzz/run.py [TARGET ...] [--seconds 60] [--json docs/benchmarks/fuzz.json]

Every target runs in a process of its own. What it finds is left in fuzz/findings; what it learnt,
in fuzz/corpus, from where the next run goes on. Executions add up in the JSON file, by target and
by day.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
ONE = "--one"


def fuzz_one(name: str, options: list[str]) -> None:
    """In a process of its own: libFuzzer ends it."""
    import atheris
    from targets import MODULES, TARGETS

    with atheris.instrument_imports(include=list(MODULES)):
        # Imported here for the first time, so that they are instrumented.
        TARGETS[name](b"\x01warm up")
    atheris.Setup([sys.argv[0], *options], TARGETS[name])
    atheris.Fuzz()


def run(name: str, seconds: int) -> dict[str, int | str]:
    """Executions and what was found."""
    corpus, findings = HERE / "corpus" / name, HERE / "findings"
    corpus.mkdir(parents=True, exist_ok=True)
    findings.mkdir(exist_ok=True)
    options = [str(corpus), f"-max_total_time={seconds}", "-max_len=512", "-timeout=20"]
    options += [f"-artifact_prefix={findings}/{name}-", "-print_final_stats=1", "-verbosity=1"]
    dictionary = HERE / f"{name}.dict"
    if dictionary.exists():
        options.append(f"-dict={dictionary}")
    command = [sys.executable, str(Path(__file__)), ONE, name, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    executed = re.findall(r"stat::number_of_executed_units:\s*(\d+)", done.stderr)
    executed = executed or re.findall(r"Done (\d+) runs", done.stderr) or ["0"]
    found = ""
    if done.returncode:
        found = (re.findall(r"^.*(?:Error|Exception).*$", done.stderr, re.MULTILINE) or ["?"])[0]
        (findings / f"{name}.log").write_text(done.stderr[-20_000:])
    return {"executions": int(executed[-1]), "finding": found}


def add(path: Path, name: str, executions: int, finding: str) -> None:
    """Into the counts, at once: a run that is broken off loses nothing."""
    known = json.loads(path.read_text()) if path.exists() else {}
    known["command"] = "make fuzz SECONDS=..."
    for counts in (
        known.setdefault("executions", {}),
        known.setdefault("days", {}).setdefault(datetime.now(UTC).date().isoformat(), {}),
    ):
        counts[name] = counts.get(name, 0) + executions
    known["total"] = sum(known["executions"].values())
    if finding:
        known.setdefault("findings", []).append(f"{name}: {finding}")
    path.write_text(json.dumps(known, indent=1) + "\n")


def main() -> int:
    if sys.argv[1:2] == [ONE]:
        fuzz_one(sys.argv[2], sys.argv[3:])
        return 0
    from targets import TARGETS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", help=f"of {', '.join(TARGETS)}; default: all")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--json", type=Path, help="where executions add up")
    arguments = parser.parse_args()
    failed = False
    unknown = set(arguments.targets) - set(TARGETS)
    if unknown:
        parser.error(f"there is no target {unknown.pop()!r}")
    for name in arguments.targets or TARGETS:
        result = run(name, arguments.seconds)
        failed |= bool(result["finding"])
        print(f"{name:16} {result['executions']:>12,}  {result['finding']}", flush=True)
        if arguments.json:
            add(arguments.json, name, int(result["executions"]), str(result["finding"]))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
