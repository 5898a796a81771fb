"""The table of chaos.py, and how memory went in the soak."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from chaos_stage import Result

_HEAD = (
    "| Fault | Sessions | Harmed | Packets lost or twice | Resumed | Served again, s "
    "| Memory, MiB | Descriptors | | Seen at |",
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- | --- |",
)
_WORDS = """\
`make chaos`; every fault has a gateway of its own, with the real engine where the text names the
engine, else a scripted one. *Harmed*: did not hear the whole text, and the code that told so.
*Served again*: from the end of the fault until a new listener is heard to the end, or until no
session is left. *Memory* and *descriptors*: of the gateway's process, after minus before; one that
was just started gathers some 10 to 20 MiB once.
"""


def table(results: list[Result]) -> str:
    """A Markdown table."""
    lines = list(_HEAD)
    for each in results:
        codes = f" ({', '.join(each.harmed_codes)})" if each.harmed_codes else ""
        grown = (f"{each.memory_growth_mib:+g}", f"{each.descriptor_growth:+d}")
        memory, descriptors = (
            grown if any((each.memory_growth_mib, each.descriptor_growth)) else ("", "")
        )
        verdict = "" if each.passed else "**not as expected.** "
        lines.append(
            f"| {each.what} | {each.sessions} | {each.harmed}{codes} | {each.packets_lost} of "
            f"{each.packets:,} | {each.resumes} | {each.recovery_seconds:g} | {memory} "
            f"| {descriptors} | {verdict}{each.note} | {each.measured} |"
        )
    return "\n".join(lines)


def markdown(results: list[Result], machine: str) -> str:
    """The page."""
    soaked = any(each.weights for each in results)
    picture = "\n![Memory in the soak](chaos-soak.png)\n" if soaked else ""
    return f"# Faults\n\n{_WORDS}\n{table(results)}\n{picture}\n*{machine}*\n"


def plot(rows: list[dict[str, float]], path: Path) -> None:
    """Memory of gateway and engine over the time of a soak, each on a scale of its own."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9.2, 3.4), layout="constrained")
    minutes = [row["seconds"] / 60 for row in rows]
    pair: list[tuple[Any, str, str]] = [
        (axes[0], "gateway_mib", "gateway"),
        (axes[1], "engine_mib", "engine"),
    ]
    for axis, name, label in pair:
        values = [row[name] for row in rows]
        axis.plot(minutes, values, color="#1b6ca8")
        middle = sorted(values)[len(values) // 2]
        axis.set_ylim(middle - 150, middle + 150)
        axis.set(title=f"{label}, resident memory", xlabel="minutes", ylabel="MiB")
        axis.grid(alpha=0.3)
    figure.savefig(path, dpi=110, metadata={"Software": None})
