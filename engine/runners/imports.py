"""What makes large imports quicker."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def settled() -> Iterator[None]:
    """Import within; what was imported is not looked through for garbage, now or later.

    vLLM brings a million objects that live as long as the process. Collecting while they arrive
    takes a fifth of the time; each full collection afterwards, when vLLM asks for some while it
    starts and while audio is being sent, takes most of a second.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(50_000, 20, 1000)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
    gc.freeze()
