"""API keys: who may do what, and how much. Only hashes are kept.

A key is `vg_<id>_<secret>` with 256 random bits of secret, so one SHA-256 is enough to keep it:
there is nothing to guess. The id finds the entry; the secret is compared in constant time.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import orjson

SCOPES = {
    "speak": "open sessions and ask for speech over HTTP",
    "tokens": "give out short-lived tokens that speak",
    "metrics": "read /metrics",
}
_KEY = re.compile(r"vg_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_NOBODY = "0" * 64


class KeyFileError(ValueError):
    """The file of keys cannot be used. The message says where and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One entry of the file. Quotas: 0 is no limit. Times are Unix seconds, `expires` 0: never."""

    id: str
    name: str
    hash: str
    scopes: tuple[str, ...] = ("speak",)
    sessions: int = 0
    """Sessions at once."""
    chars_per_minute: int = 0
    requests_per_minute: int = 0
    """New sessions and HTTP requests."""
    created: int = 0
    expires: int = 0
    revoked: bool = False

    def usable(self, now: float) -> bool:
        return not self.revoked and (not self.expires or now < self.expires)


def make_key(name: str, **options: object) -> tuple[str, Key]:
    """A new key as its owner gets it, once, and its entry."""
    identifier, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    entry = Key(
        id=identifier,
        name=name,
        hash=_hash(secret),
        created=int(time.time()),
        **options,  # type: ignore[arg-type]
    )
    return f"vg_{identifier}_{secret}", entry


class KeyRing:
    """The entries of a file."""

    def __init__(self, keys: Iterable[Key]) -> None:
        self.keys = {key.id: key for key in keys}

    def find(self, presented: str, now: float) -> Key | None:
        """The entry of a key that may be used; None for any other text."""
        match = _KEY.fullmatch(presented)
        entry = self.keys.get(match[1]) if match else None
        # Unknown ids take as long as wrong secrets.
        same = hmac.compare_digest(
            _hash(match[2] if match else ""), entry.hash if entry else _NOBODY
        )
        return entry if entry is not None and same and entry.usable(now) else None

    def by_id(self, identifier: str, now: float) -> Key | None:
        """The entry that a token names, if it may still be used."""
        entry = self.keys.get(identifier)
        return entry if entry is not None and entry.usable(now) else None


def read_keys(path: Path) -> KeyRing:
    """Raises `KeyFileError`, `OSError`."""
    try:
        document = orjson.loads(path.read_bytes())
        entries = [_entry(values) for values in document["keys"]]
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as failure:
        raise KeyFileError(f"{path} is no file of keys: {failure}") from None
    if len({entry.id for entry in entries}) != len(entries):
        raise KeyFileError(f"{path}: two keys have the same id.")
    return KeyRing(entries)


def write_keys(path: Path, ring: KeyRing) -> None:
    """Replace the file in one step, readable by its owner alone."""
    document = {"keys": [asdict(key) for key in ring.keys.values()]}
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _entry(values: dict[str, object]) -> Key:
    known = {field.name: field.type for field in fields(Key)}
    for name, value in values.items():
        if name not in known:
            raise ValueError(f"a key has no {name!r}")
        wanted = {"str": str, "int": int, "bool": bool}.get(str(known[name]), list)
        if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
            raise ValueError(f"{name} = {value!r} of a key has the wrong type")
        if isinstance(value, int) and value < 0:
            raise ValueError(f"{name} of a key is negative")
    scopes = values.get("scopes", ["speak"])
    assert isinstance(scopes, list)
    unknown = [scope for scope in scopes if scope not in SCOPES]
    if unknown:
        raise ValueError(f"there is no scope {unknown[0]!r}; there are {', '.join(SCOPES)}")
    return Key(**{**values, "scopes": tuple(scopes)})  # type: ignore[arg-type]
