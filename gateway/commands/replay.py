"""`voxgate replay`: recorded sessions run again, without an engine."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from gateway.commands.console import CommandError, stderr, stdout
from gateway.offer import Offer
from gateway.replay import Outcome, RecordingError, ScriptedEngine, recordings, replay
from gateway.settings import Settings


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "place", metavar="DIR", type=Path, help="what `voxgate serve --record DIR` wrote, or a file"
    )


def offer_of(settings: Settings, engine: ScriptedEngine) -> Offer:
    """What a gateway of these settings offers with this engine."""
    from gateway.app import Gateway

    return Gateway(settings, engine).offer()


def run(arguments: Namespace) -> int:
    try:
        outcomes = [replay(path, offer_of) for path in recordings(arguments.place)]
    except RecordingError as failure:
        raise CommandError(str(failure)) from failure
    for outcome in outcomes:
        _tell(outcome)
    return 1 if any(outcome.difference for outcome in outcomes) else 0


def _tell(outcome: Outcome) -> None:
    what = (
        f"{outcome.messages} messages and {outcome.packets} packets of {outcome.seconds:.1f} s, "
        f"{outcome.events} events"
    )
    difference = outcome.difference
    if difference is None:
        stdout().print(f"{outcome.session}: the same: {what}", markup=False)
        return
    stdout().print(f"{outcome.session}: differs at line {difference.line}, after {what}")
    stderr().print(f"  recorded: {difference.recorded}", markup=False)
    stderr().print(f"  replayed: {difference.replayed}", markup=False)
