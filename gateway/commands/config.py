"""`voxgate config`: the settings in force, where each comes from, and what it means."""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import asdict

from gateway.commands.options import add_setting_options, chosen_settings


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--explain", action="store_true", help="with the meaning of each")
    parser.add_argument("--json", action="store_true", help="as one JSON object")
    parser.add_argument(
        "--check", action="store_true", help="only say whether a gateway would start with them"
    )
    add_setting_options(parser)


def run(arguments: Namespace) -> int:
    from gateway import safety
    from gateway.configuration import SECRET_VARIABLES, descriptions, load
    from gateway.settings import PREFIX

    found = load(chosen_settings(arguments), os.environ)
    if arguments.check:
        safety.check(
            found.settings, has_secret=any(name in os.environ for name in SECRET_VARIABLES)
        )
        print("These settings are fine.")
        return 0
    values = asdict(found.settings)
    if arguments.json:
        sources = {name: {"value": values[name], "from": found.sources[name]} for name in values}
        json.dump(sources, sys.stdout, indent=2)
        print()
        return 0
    meanings = descriptions()
    for name, value in values.items():
        written = json.dumps(value)
        if arguments.explain:
            print(f"# {meanings.get(name, '')}".rstrip())
            print(f"# --{name.replace('_', '-')}, {PREFIX}{name.upper()}")
        print(f"{name} = {written}  # {found.sources[name]}")
        if arguments.explain:
            print()
    return 0
