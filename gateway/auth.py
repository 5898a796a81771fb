"""Who a request comes from and what it may do. Pure: text and times in, a decision out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gateway.auth_tokens import Claims, Signer, find_secret
from gateway.errors import ERRORS
from gateway.keys import Key, KeyRing, read_keys
from gateway.pacing import Refusal
from gateway.protocol import ProtocolError
from gateway.rates import Bucket
from gateway.settings import Settings

_MINUTE = 60.0
_CLIENT = "key:"


@dataclass(frozen=True, slots=True)
class Denied:
    """Why a request is not served. `code` is in `errors.ERRORS`."""

    code: str
    message: str | None = None
    retry_after_ms: int | None = None


class Principal:
    """A key in use: what it may do and how much it has done lately."""

    def __init__(self, key: Key) -> None:
        self.renew(key)

    @property
    def client(self) -> str:
        """Whose sessions they are, for limits; an id, no secret."""
        return _CLIENT + self.key.id

    def renew(self, key: Key) -> None:
        """The entry was read again."""
        self.key = key
        self._chars = Bucket(key.chars_per_minute / _MINUTE)
        self._requests = Bucket(key.requests_per_minute / _MINUTE)

    def request(self, now: float) -> Denied | None:
        """Count one request, before anything is done for it."""
        return _take(self._requests, 1, self.key.requests_per_minute, now, "requests")

    def characters(self, count: int, now: float) -> Denied | None:
        """Count text, before it is spoken."""
        return _take(self._chars, count, self.key.chars_per_minute, now, "characters")


def _take(bucket: Bucket, count: int, most: int, now: float, what: str) -> Denied | None:
    if not most:
        return None
    wait = bucket.until(most - count, now) if count <= most else _MINUTE
    if wait > 0.0:
        message = f"This key has {most} {what} a minute."
        code = "quota_exceeded" if what == "characters" else "too_many_requests"
        return Denied(code, message, int(wait * 1000) + 1)
    bucket.add(count, now)
    return None


class Access:
    """Everything about keys and tokens of one server. `enabled`: whether there are keys at all."""

    def __init__(
        self,
        settings: Settings,
        environment: Mapping[str, str],
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises `KeyFileError`, `TokenSecretError`, `OSError`."""
        self._settings = settings
        self._wall = wall
        self.clock = clock
        self.enabled = bool(settings.keys_file)
        self._ring = KeyRing(())
        self._principals: dict[str, Principal] = {}
        secret = find_secret(settings.token_secret_file, environment)
        self._signer = Signer(secret) if secret is not None else None
        self.reload()

    def reload(self) -> int:
        """Read the keys again; how many there are. Raises `KeyFileError`, `OSError`; the keys of
        before stay in force then."""
        if self.enabled:
            self._ring = read_keys(Path(self._settings.keys_file))
            for identifier, principal in list(self._principals.items()):
                entry = self._ring.keys.get(identifier)
                if entry is None:
                    del self._principals[identifier]
                elif entry != principal.key:
                    principal.renew(entry)
        return len(self._ring.keys)

    def identify(self, credential: str | None, scope: str) -> Principal | Denied:
        """Whose key or token it is, and that it may do `scope`."""
        if not credential:
            return Denied("unauthorized")
        now = self._wall()
        claims = self._signer.read(credential, now) if self._signer is not None else None
        if claims is not None:
            entry = self._ring.by_id(claims.key, now)
            scopes = claims.scopes
        else:
            entry = self._ring.find(credential, now)
            scopes = entry.scopes if entry is not None else ()
        if entry is None:
            return Denied("unauthorized")
        if scope not in scopes:
            return Denied("forbidden", f"This key may not do this; it needs the scope `{scope}`.")
        return self._principals.setdefault(entry.id, Principal(entry))

    def enter(self, credential: str | None, scope: str) -> Principal | Denied:
        """The same for one request more, which is counted."""
        found = self.identify(credential, scope)
        return (found.request(self.clock()) or found) if isinstance(found, Principal) else found

    def in_force(self, client: str) -> bool:
        """Whether sessions of this client may go on: its key was not revoked, nor taken away."""
        if not client.startswith(_CLIENT):
            return True
        entry = self._ring.keys.get(client.removeprefix(_CLIENT))
        return entry is not None and not entry.revoked

    def principal(self, client: str) -> Principal | None:
        """The key that a client is, if it is one."""
        return self._principals.get(client.removeprefix(_CLIENT))

    def token(self, principal: Principal, seconds: int | None) -> tuple[str, int] | Denied:
        """A token that speaks for a key, and its lifetime in seconds."""
        if self._signer is None:
            return Denied("no_tokens")
        lifetime = min(seconds or self._settings.token_seconds, self._settings.token_seconds)
        expires = int(self._wall()) + lifetime
        if principal.key.expires:
            expires = min(expires, principal.key.expires)
        claims = Claims(principal.key.id, expires, ("speak",))
        return self._signer.sign(claims), expires - int(self._wall())


def as_refusal(denied: Denied) -> Refusal:
    """The same as what keeps a session out."""
    message = denied.message or ERRORS[denied.code].meaning
    return Refusal(denied.code, message, denied.retry_after_ms or 0)


def charge(principal: Principal) -> Callable[[int, float], None]:
    """Counts text of a session of this key; raises `ProtocolError` when it has had enough."""

    def count(characters: int, now: float) -> None:
        denied = principal.characters(characters, now)
        if denied is not None:
            raise ProtocolError(denied.code, denied.message, retry_after_ms=denied.retry_after_ms)

    return count
