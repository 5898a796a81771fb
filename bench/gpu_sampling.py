"""What a GPU does while something runs: memory and utilisation, sampled by a thread."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

from bench.stats import rounded


@dataclass(slots=True)
class GpuSampler:
    """Samples NVML while entered; all samples are empty where there is no NVIDIA GPU."""

    interval: float = 0.1
    samples: list[tuple[float, float, float]] = field(default_factory=list)
    """(time of `time.perf_counter`, utilisation in percent, memory in use in bytes)."""
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._sample, name="gpu-sampler", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _sample(self) -> None:
        try:
            import pynvml  # type: ignore[import-not-found]

            pynvml.nvmlInit()
            device = pynvml.nvmlDeviceGetHandleByIndex(0)
        except Exception:
            # Without NVML the numbers are missing from the report, and nothing else is.
            return
        while not self._stop.wait(self.interval):
            with suppress(pynvml.NVMLError):
                busy = float(pynvml.nvmlDeviceGetUtilizationRates(device).gpu)
                used = float(pynvml.nvmlDeviceGetMemoryInfo(device).used)
                self.samples.append((time.perf_counter(), busy, used))

    def between(self, start: float, end: float) -> dict[str, float] | None:
        """Mean utilisation and most memory in [start, end]; None without samples in it."""
        inside = [sample for sample in self.samples if start <= sample[0] <= end]
        if not inside:
            return None
        return {
            "utilisation_percent": rounded(sum(busy for _, busy, _ in inside) / len(inside), 3),
            "memory_gib": rounded(max(used for _, _, used in inside) / 2**30, 4),
        }
