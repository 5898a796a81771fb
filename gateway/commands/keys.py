"""`voxgate keys`: who may use a gateway. The key itself is printed once and kept nowhere."""

from __future__ import annotations

import json
import os
import time
from argparse import ArgumentParser, Namespace
from dataclasses import asdict, replace
from pathlib import Path

from gateway.commands.console import CommandError, command, stderr
from gateway.keys import SCOPES, KeyFileError, KeyRing, make_key, read_keys, write_keys

_DAY = 86_400


def add_arguments(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="action")
    add = actions.add_parser("add", help="make a key and print it")
    add.add_argument("name", help="whose key it is")
    add.add_argument(
        "--scope",
        action="append",
        choices=sorted(SCOPES),
        help="; ".join(f"{name}: {what}" for name, what in SCOPES.items()) + "; default: speak",
    )
    add.add_argument("--sessions", type=int, default=0, metavar="N", help="at once; 0: no limit")
    add.add_argument("--chars-per-minute", type=int, default=0, metavar="N")
    add.add_argument("--requests-per-minute", type=int, default=0, metavar="N")
    add.add_argument("--days", type=float, default=0, metavar="N", help="until it expires")
    revoke = actions.add_parser("revoke", help="let a key in no longer")
    revoke.add_argument("key", help="id of the key, or its name if only one has it")
    show = actions.add_parser("list", help="show all keys, without their secrets")
    show.add_argument("--json", action="store_true")
    for action in (add, revoke, show):
        action.add_argument(
            "--file",
            default=os.environ.get("VOXGATE_KEYS_FILE", "keys.json"),
            help="default: VOXGATE_KEYS_FILE, or keys.json",
        )


def run(arguments: Namespace) -> int:
    path = Path(arguments.file)
    try:
        ring = read_keys(path) if path.exists() or arguments.action != "add" else KeyRing(())
    except KeyFileError as failure:
        raise CommandError(str(failure)) from None
    if arguments.action == "add":
        _add(arguments, path, ring)
    elif arguments.action == "revoke":
        _revoke(arguments.key, path, ring)
    else:
        _list(ring, as_json=arguments.json)
    return 0


def _add(arguments: Namespace, path: Path, ring: KeyRing) -> None:
    quotas = {
        name: getattr(arguments, name)
        for name in ("sessions", "chars_per_minute", "requests_per_minute")
    }
    if min(quotas.values()) < 0 or arguments.days < 0:
        raise CommandError("A quota cannot be negative.")
    key, entry = make_key(
        arguments.name,
        scopes=tuple(dict.fromkeys(arguments.scope or ("speak",))),
        expires=int(time.time() + arguments.days * _DAY) if arguments.days else 0,
        **quotas,
    )
    write_keys(path, KeyRing([*ring.keys.values(), entry]))
    stderr().print(
        f"Key {entry.id} of {entry.name} is in {path}. It is shown this once:", markup=False
    )
    print(key)
    stderr().print(
        f"Ask for keys:  {command()} serve --keys-file {path}\n"
        "A gateway that runs with this file takes it on SIGHUP.",
        markup=False,
    )


def _revoke(wanted: str, path: Path, ring: KeyRing) -> None:
    found = [key for key in ring.keys.values() if wanted in (key.id, key.name) and not key.revoked]
    if len(found) != 1:
        which = "No key in force" if not found else f"{len(found)} keys"
        raise CommandError(f"{which} called {wanted} in {path}; see: voxgate keys list")
    entry = replace(found[0], revoked=True)
    write_keys(path, KeyRing([{**ring.keys, entry.id: entry}[name] for name in ring.keys]))
    stderr().print(
        f"Key {entry.id} of {entry.name} is revoked; on SIGHUP a gateway ends its sessions.",
        markup=False,
    )


def _list(ring: KeyRing, *, as_json: bool) -> None:
    if as_json:
        entries = [
            {name: value for name, value in asdict(key).items() if name != "hash"}
            for key in ring.keys.values()
        ]
        print(json.dumps(entries, indent=2))
        return
    now = time.time()
    for key in ring.keys.values():
        state = "revoked" if key.revoked else "in force" if key.usable(now) else "expired"
        quotas = [
            f"{value} {name.replace('_', ' ')}"
            for name in ("sessions", "chars_per_minute", "requests_per_minute")
            if (value := getattr(key, name))
        ]
        print(
            f"{key.id}  {state:8}  {key.name}  {','.join(key.scopes)}  {', '.join(quotas)}".rstrip()
        )
