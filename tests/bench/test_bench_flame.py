from __future__ import annotations

from bench.flame import named


def test_processes_are_called_by_what_they_are() -> None:
    line = "/place/python -m gateway.cli serve --port 1"
    chart = (
        "<text>/place/py-spy record --pid 7</text>"
        f"<g><title>process 7:&quot;{line}&quot; (9 samples, 90%)</title>"
        f"<text>process 7:&quot;{line}&quot;</text></g>"
        "<g><title>process 8:&quot;VLLM::EngineCore&quot; (1 samples, 10%)</title></g>"
        "<title>process 9:&quot;/place/python -c from multiprocessing.forkserver import main (1 s"
        "</title><title> main(5, 6, [&apos;a&apos;], **{&apos;/place&apos;}) (1 samples</title>"
    )
    assert named(chart) == (
        "<text>Gateway and engine</text>"
        "<g><title>gateway (9 samples, 90%)</title><text>gateway</text></g>"
        "<g><title>language model (1 samples, 10%)</title></g>"
        "<title>fork server (1 s</title><title>fork server (1 samples</title>"
    )
