"""What cutting costs: megabytes of UTF-8 text a second on one core.

    python -m bench.cutting_cost

Feeds English and Mandarin prose at once and in fragments of four code points, the size of a
language model's token: to the splitter alone, and to filter and splitter together. The best of many
short rounds counts, since other load only ever slows a round.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from gateway.cutting import Splitter, TurnText

_ENGLISH: Final = (
    "The committee met at 9:30 a.m. on Tuesday, and Dr. Smith reported that costs had risen by "
    "3.14 percent since the last meeting. “That is more than we planned,” she said. Most of the "
    "increase, about $1,250.75, came from shipping (see section 4.2), but the rest is harder to "
    "explain. Nobody could say whether it would last; the next report is due in May.\n\n"
)
_MANDARIN: Final = (
    "委员会在星期二上午9：30开会，史密斯博士报告说，费用比上次会议增加了3.14%。“这比我们计划的要多。”她说。"
    "增加的部分大约有13.81万元，主要来自运输（见第4.2节），其余的原因很难解释……没有人知道这种情况会不会持续；"
    "下一份报告将在五月发布。\n\n"
)
_ROUNDS: Final = 150
_SIZE: Final = 12_000


def megabytes_per_second(
    make: Callable[[], Splitter | TurnText], text: str, fragment: int
) -> float:
    """Best rate over some rounds, in MB of UTF-8 a second."""
    fragments = [text[i : i + fragment] for i in range(0, len(text), fragment)]
    best = float("inf")
    for _ in range(_ROUNDS):
        turn = make()
        began = time.process_time()
        for part in fragments:
            turn.feed(part)
        turn.finish()
        best = min(best, time.process_time() - began)
    return len(text.encode()) / best / 1e6


def main() -> None:
    """Print one line a way of cutting, a text and a way of feeding it."""
    for make in (Splitter, TurnText):
        for name, sample in (("English", _ENGLISH), ("Mandarin", _MANDARIN)):
            text = sample * (_SIZE // len(sample.encode()))
            for label, fragment in (("at once", len(text)), ("4 code points", 4)):
                rate = megabytes_per_second(make, text, fragment)
                print(f"{make.__name__:9} {name:9} {label:14} {rate:6.2f} MB/s")


if __name__ == "__main__":
    main()
