"""`voxgate bench`: how many listeners this machine carries."""

from __future__ import annotations

import importlib
from argparse import ArgumentParser, Namespace


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--streams", metavar="N", type=int, default=1, help="listeners at once")
    parser.add_argument("--seconds", metavar="S", type=float, default=60.0)
    parser.add_argument("--url", help="a running gateway; default: starts one of its own")
    parser.add_argument("--json", metavar="FILE", help="write the numbers there")


def run(arguments: Namespace) -> int:
    return int(importlib.import_module("bench.load").main(arguments) or 0)
