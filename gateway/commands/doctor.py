"""`voxgate doctor`: is this machine fit, and if not, what to type."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from dataclasses import asdict

from rich.table import Table

from gateway.commands.console import stdout
from gateway.doctor import Status, diagnose, probe

MARKS = {Status.OK: "[green]ok[/]", Status.WARN: "[yellow]slow[/]", Status.FAIL: "[red]missing[/]"}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="where the gateway is to listen")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: Namespace) -> int:
    findings = diagnose(probe(arguments.host, arguments.port))
    failed = any(each.status is Status.FAIL for each in findings)
    if arguments.json:
        report = {"fit": not failed, "findings": [asdict(each) for each in findings]}
        print(json.dumps(report, ensure_ascii=False, indent=2))
        return int(failed)
    table = Table(box=None, show_header=False, pad_edge=False)
    for each in findings:
        table.add_row(MARKS[each.status], each.name, each.found)
        if each.fix:
            table.add_row("", "", f"[bold]-> {each.fix}[/]")
    console = stdout()
    console.print(table)
    console.print(
        "[red]Voxgate does not run here until what is missing is there.[/]"
        if failed
        else "[green]This machine can run Voxgate.[/]"
    )
    return int(failed)
