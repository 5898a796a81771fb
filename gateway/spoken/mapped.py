"""Text with a map back to the writing that it came from."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Span(NamedTuple):
    """Spoken code points `spoken_start..spoken_end` say the written ones `start..end`.

    `exact`: the two are the same text, so that parts of the span correspond too.
    """

    spoken_start: int
    spoken_end: int
    start: int
    end: int
    exact: bool


class Run(NamedTuple):
    """A run of text and the written range `start..end` that it says; `exact` as in `Span`."""

    text: str
    start: int
    end: int
    exact: bool

    def part(self, low: int, high: int) -> Run:
        """The run's code points `low..high`; all of the written range unless the run is exact."""
        text = self.text[low:high]
        if self.exact:
            return Run(text, self.start + low, self.start + low + len(text), True)
        return Run(text, self.start, self.end, False)


@dataclass(frozen=True, slots=True)
class Spoken:
    """What is said, and where it stands in the writing. Spans cover `text` in order."""

    text: str
    spans: tuple[Span, ...]

    def written(self, low: int, high: int) -> tuple[int, int]:
        """The written range that the spoken code points `low..high` say.

        Raises ValueError for an empty range or one outside the text.
        """
        if not 0 <= low < high <= len(self.text):
            raise ValueError(f"no spoken text at {low}..{high} of {len(self.text)}")
        first = self._span_at(low)
        last = self._span_at(high - 1)
        start = first.start + (low - first.spoken_start if first.exact else 0)
        end = last.start + high - last.spoken_start if last.exact else last.end
        return start, end

    def _span_at(self, index: int) -> Span:
        return self.spans[bisect_right(self.spans, index, key=lambda span: span.spoken_start) - 1]


def joined(runs: Iterable[Run]) -> Spoken:
    """Runs put together; neighbours that continue each other, or that say some of the same
    writing, become one span."""
    spans: list[Span] = []
    parts: list[str] = []
    at = 0
    for run in runs:
        if not run.text:
            continue
        end = at + len(run.text)
        last = spans[-1] if spans else None
        if last and last.exact and run.exact and last.end == run.start:
            spans[-1] = last._replace(spoken_end=end, end=run.end)
        elif last and run.start < last.end:
            spans[-1] = Span(last.spoken_start, end, last.start, max(last.end, run.end), False)
        else:
            spans.append(Span(at, end, run.start, run.end, run.exact))
        parts.append(run.text)
        at = end
    return Spoken("".join(parts), tuple(spans))


class Edit(NamedTuple):
    """Replace the code points `low..high` by `text`."""

    low: int
    high: int
    text: str


def edited(runs: Sequence[Run], edits: Sequence[Edit]) -> list[Run]:
    """Runs after edits, which are in order, do not overlap and count over the joined text.

    What is put in says all that it replaces.
    """
    out: list[Run] = []
    rest = list(reversed(runs))
    at = 0

    def take(until: int) -> list[Run]:
        nonlocal at
        taken: list[Run] = []
        while at < until:
            run = rest.pop()
            size = len(run.text)
            if at + size > until:
                rest.append(run.part(until - at, size))
                run = run.part(0, until - at)
            taken.append(run)
            at += len(run.text)
        return taken

    for low, high, text in edits:
        out += take(low)
        replaced = take(high)
        if text:
            out.append(Run(text, replaced[0].start, replaced[-1].end, False))
    return out + rest[::-1]
