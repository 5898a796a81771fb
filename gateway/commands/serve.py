"""`voxgate serve`: the gateway with its engine, until Ctrl-C."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from contextlib import ExitStack

from gateway.commands.console import command, starting, stderr
from gateway.commands.interrupts import StoppableStart, keep_interrupts_here
from gateway.commands.local_engine import add_engine_options, engine_factory
from gateway.commands.logs import configure_logging
from gateway.commands.options import add_setting_options, chosen_settings
from gateway.playback import find_player


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--record",
        metavar="DIR",
        dest="setting_record_dir",
        help="write every session into DIR, with its text, for voxgate replay",
    )
    parser.add_argument(
        "--log-level", choices=("debug", "info", "warning", "error"), default="warning"
    )
    add_engine_options(parser)
    add_setting_options(parser)


def run(arguments: Namespace) -> int:
    factory = engine_factory(arguments)
    from gateway import safety
    from gateway.app import serve
    from gateway.configuration import SECRET_VARIABLES, load

    settings = load(chosen_settings(arguments), os.environ).settings
    safety.check(settings, has_secret=any(name in os.environ for name in SECRET_VARIABLES))
    configure_logging(arguments.log_level, settings.log_format)
    console = stderr()
    keep_interrupts_here()
    with ExitStack() as bar:
        report = bar.enter_context(starting(console))

        def ready(url: str) -> None:
            bar.close()
            console.print(f"[bold green]Voxgate is ready:[/] [bold]{url}[/]")
            where = "" if find_player() is not None else " -o hello.ogg"
            console.print(f'Open it, or type:  {command()} say "Hello, world. 你好，世界。"{where}')
            console.print("Ctrl-C stops it.")

        serve(settings, lambda: StoppableStart(factory), ready, report)
    console.print("Stopped.")
    return 0
