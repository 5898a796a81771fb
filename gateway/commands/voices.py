"""`voxgate voices`: who can speak."""

from __future__ import annotations

import asyncio
import json
from argparse import ArgumentParser, Namespace
from dataclasses import asdict, dataclass
from importlib.resources import files

from rich.table import Table

from gateway.client import GatewayError, VoiceClient
from gateway.commands import voices_add
from gateway.commands.console import DEFAULT_URL, CommandError, stderr, stdout


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--url", help=f"ask this gateway; default: {DEFAULT_URL} if it runs")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(action=None)
    add = parser.add_subparsers(dest="action", metavar="add").add_parser(
        "add", help="one more voice for a ChatTTS release"
    )
    voices_add.add_arguments(add)


@dataclass(frozen=True, slots=True)
class Card:
    """What is told of a voice."""

    id: str
    name: str = ""
    languages: tuple[str, ...] = ()
    gender: str = ""
    description: str = ""


def run(arguments: Namespace) -> int:
    if arguments.action == "add":
        return voices_add.run(arguments)
    embedded = {card.id: card for card in embedded_voices()}
    try:
        ids = asyncio.run(ask(arguments.url or DEFAULT_URL))
        cards = [embedded.get(each, Card(each)) for each in ids]
    except GatewayError as failure:
        if arguments.url is not None:
            raise CommandError(f"{arguments.url}: {failure.message}") from failure
        stderr().print("No gateway is running; these are the voices of the embedded checkpoint.")
        cards = list(embedded.values())
    if arguments.json:
        print(json.dumps([asdict(card) for card in cards], ensure_ascii=False))
        return 0
    table = Table("voice", "name", "languages", "gender", "description", box=None, pad_edge=False)
    for card in cards:
        table.add_row(card.id, card.name, " ".join(card.languages), card.gender, card.description)
    stdout().print(table)
    return 0


async def ask(url: str) -> list[str]:
    async with VoiceClient(url) as client:
        return list(client.started.voices)


def embedded_voices() -> list[Card]:
    """The voices of the embedded checkpoint, read without loading it."""
    catalogue = json.loads((files("engine") / "voices" / "mini" / "voices.json").read_text("utf-8"))
    cards = [
        Card(
            card["id"],
            card["name"],
            tuple(card["languages"]),
            card["gender"],
            card["description"],
        )
        for card in catalogue["voices"]
    ]
    automatic = Card(
        "default",
        "Automatic",
        tuple(catalogue["default"]),
        description="The best voice for the language of each piece of text.",
    )
    return [automatic, *cards]
