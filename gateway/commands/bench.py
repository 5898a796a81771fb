"""`voxgate bench`: how many listeners this machine carries, and how soon they hear something."""

from __future__ import annotations

from argparse import Namespace

from bench.load import add_arguments, main

__all__ = ["add_arguments", "run"]


def run(arguments: Namespace) -> int:
    return main(arguments)
