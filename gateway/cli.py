"""The command `voxgate`."""

from __future__ import annotations

import importlib
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from importlib import metadata

from gateway import blas  # noqa: F401  # before anything that imports numpy
from gateway.commands.console import CommandError, stderr

COMMANDS = {
    "serve": "start the gateway and its speech engine",
    "say": "speak a text through a gateway, to the speakers or into a file",
    "chat": "talk to a chat model and hear it while it writes; any key interrupts",
    "voices": "list the voices",
    "bench": "measure latency and capacity",
    "captions": "read live captions aloud: WebVTT, SRT or lines as they come",
    "replay": "run recorded sessions again and compare every message",
    "config": "show the settings in force and what they mean",
    "keys": "add, list and revoke API keys",
    "probe": "ask a gateway whether it lives or speaks, for health checks",
    "doctor": "check this machine and say how to fix it",
}
EPILOG = """examples:
  voxgate serve
  voxgate say "Hello, world. 你好，世界。"
  voxgate say "Hello." -o hello.ogg
  my-chatbot | voxgate say -
"""


def make_parser(chosen: str | None) -> ArgumentParser:
    """The parser; only the options of the command `chosen` are filled in, so that `voxgate --help`
    does not load what a command needs."""
    parser = ArgumentParser(
        prog="voxgate",
        description="Real-time voice gateway: text streams in, speech streams back.",
        epilog=EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version", action="version", version=f"voxgate {metadata.version('voxgate')}"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for name, description in COMMANDS.items():
        subparser = commands.add_parser(name, help=description, description=description)
        if name == chosen:
            module = importlib.import_module(f"gateway.commands.{name}")
            module.add_arguments(subparser)
            subparser.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. Failures are one message on standard error."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    chosen = next((each for each in arguments if not each.startswith("-")), None)
    if not arguments:
        make_parser(None).print_help(sys.stderr)
        return 2
    parsed = make_parser(chosen).parse_args(arguments)
    try:
        return int(parsed.run(parsed))
    except CommandError as failure:
        stderr().print(str(failure), style="red", markup=False)
        return failure.code
    except KeyboardInterrupt:
        return 130
    except Exception as failure:
        if not is_expected(failure):
            raise
        stderr().print(message_of(failure), style="red", markup=False)
        return 1


def message_of(failure: Exception) -> str:
    """Its message; of an `OSError` that names no file, without the error number."""
    if isinstance(failure, OSError) and failure.strerror and failure.filename is None:
        return failure.strerror
    return str(failure)


def is_expected(failure: Exception) -> bool:
    """Failures whose message says all there is to know; anything else is a fault of ours."""
    from engine.api import SpeechError
    from gateway.opus import OpusMissingError
    from gateway.settings import SettingError

    named = {"CheckpointError", "ModuleNotFoundError"}
    return (
        isinstance(failure, SpeechError | OpusMissingError | SettingError | OSError)
        or type(failure).__name__ in named
    )


if __name__ == "__main__":
    raise SystemExit(main())
