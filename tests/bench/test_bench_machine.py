from __future__ import annotations

import json
import os
import subprocess
import sys

from bench import machine


def test_a_report_says_what_it_was_made_on() -> None:
    about = machine.about("load")
    json.dumps(about)
    assert about["kind"] == "load"
    described = machine.describe()
    assert described["cores"] == len(os.sched_getaffinity(0))
    assert "numpy" in machine.versions()


def test_usage_counts_children_that_live_and_those_that_are_over() -> None:
    spin = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\n"
    stay = spin + "print(1, flush=True); input()"
    script = (
        "import subprocess, sys\n"
        f"subprocess.run([sys.executable, '-c', {spin!r}])\n"
        f"child = subprocess.Popen([sys.executable, '-c', {stay!r}],"
        " stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "print('spun', flush=True)\n"
        "input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        used = machine.usage(process.pid)
        process.communicate(b"\n")
    assert used.cpu_seconds >= 0.6
    assert used.memory_bytes > 1_000_000
