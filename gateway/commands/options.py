"""Every setting as a flag."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable
from dataclasses import fields

from gateway.configuration import descriptions
from gateway.settings import KINDS, Settings

_DEST = "setting_"


def add_setting_options(parser: ArgumentParser) -> None:
    """A flag for every setting, and `--config` for a file of them."""
    group = parser.add_argument_group(
        "settings", "Also VOXGATE_NAME in the environment, or name = value in the file."
    )
    group.add_argument("--config", metavar="FILE", help="TOML file of settings")
    meanings = descriptions()
    for field in fields(Settings):
        kind = str(field.type)
        text = meanings.get(field.name, "")
        about = f"{text} Default: {field.default!r}.".strip().replace("%", "%%")
        flag = "--" + field.name.replace("_", "-")
        if kind == "bool":
            group.add_argument(
                flag,
                dest=_DEST + field.name,
                metavar="BOOL",
                nargs="?",
                const=True,
                type=_reader("bool"),
                help=about,
            )
        else:
            group.add_argument(
                flag, dest=_DEST + field.name, metavar="X", type=_reader(kind), help=about
            )


def chosen_settings(arguments: Namespace) -> dict[str, object]:
    """What was chosen by flags, by the name of the setting; `config` too."""
    chosen: dict[str, object] = {
        name.removeprefix(_DEST): value
        for name, value in vars(arguments).items()
        if name.startswith(_DEST) and value is not None
    }
    if getattr(arguments, "config", None):
        chosen["config"] = arguments.config
    return chosen


def _reader(kind: str) -> Callable[[str], object]:
    def read(text: str) -> object:
        try:
            return KINDS[kind].read(text)
        except ValueError:
            raise ArgumentTypeError(f"{text!r} is not {KINDS[kind].words}") from None

    return read
