"""When each character of a text is said, from the word times of captions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gateway.protocol import Caption


class Characters(NamedTuple):
    """Characters in order, each with its first sample and the one after its last, at 24 kHz.

    Times never go back, and leave no gap.
    """

    characters: list[str]
    starts: list[int]
    ends: list[int]


def written(caption: Caption, until: int) -> Characters:
    """The text as it was written. What no word covers, such as marks and white space, fills the
    time between words, the last to the sample `until`."""
    words = [
        (word["start"] - caption.start, word["end"] - caption.start, word)
        for word in caption.words or ()
    ]
    anchors = [(0, caption.start_sample)]
    for start, end, word in words:
        anchors += [(start, word["start_sample"]), (end, word["end_sample"])]
    anchors.append((len(caption.text), until))
    return _between(caption.text, anchors)


def spoken(caption: Caption, until: int) -> Characters:
    """What was said for it, in words with single spaces between."""
    words = caption.words or ()
    if not words:
        return _between(caption.spoken, [(0, caption.start_sample), (len(caption.spoken), until)])
    text, anchors = "", [(0, caption.start_sample)]
    for word in words:
        text += " " if text else ""
        anchors.append((len(text), word["start_sample"]))
        text += word.get("spoken", word["text"])
        anchors.append((len(text), word["end_sample"]))
    text += " "
    return _between(text, [*anchors, (len(text), until)])


def _between(text: str, anchors: Sequence[tuple[int, int]]) -> Characters:
    times = list(_times(anchors))
    times += [anchors[-1][1]] * (len(text) + 1 - len(times))
    times[-1] = max(times[-1], anchors[-1][1])
    for at in range(1, len(times)):
        times[at] = max(times[at], times[at - 1])
    return Characters(list(text), times[:-1], times[1:])


def _times(anchors: Sequence[tuple[int, int]]) -> Iterator[int]:
    """The time at which each character begins, and at last the end."""
    at, time = anchors[0]
    yield time
    for to, then in anchors[1:]:
        for position in range(at + 1, to + 1):
            yield time + (then - time) * (position - at) // (to - at)
        at, time = max(at, to), then
