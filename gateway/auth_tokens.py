"""Short-lived tokens for browsers: signed, so that nothing has to be kept of them.

`vt_<payload>.<signature>`, both base64url: JSON of the key's id, the expiry and the scopes, and its
HMAC-SHA256. A token dies with its key.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import orjson

SECRET_VARIABLE = "VOXGATE_TOKEN_SECRET"
_PREFIX = "vt_"
_LEAST_BYTES = 32


class TokenSecretError(ValueError):
    """There is no secret that could sign tokens. The message says what to do."""


class Claims(NamedTuple):
    """What a token says. `expires`: Unix seconds."""

    key: str
    expires: int
    scopes: tuple[str, ...]


class Signer:
    """Gives out tokens and reads them. Raises `TokenSecretError` for a secret that is too short."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) < _LEAST_BYTES:
            raise TokenSecretError(
                f"The secret that signs tokens has {len(secret)} bytes and needs {_LEAST_BYTES}. "
                "Make one: openssl rand -hex 32"
            )
        # Not the secret itself, so that other uses of it cannot sign tokens.
        self._key = hmac.digest(secret, b"voxgate access token 1", "sha256")

    def sign(self, claims: Claims) -> str:
        payload = _encode(orjson.dumps({"k": claims.key, "e": claims.expires, "s": claims.scopes}))
        return f"{_PREFIX}{payload}.{self._signature(payload)}"

    def read(self, token: str, now: float) -> Claims | None:
        """What a token says; None unless it was signed here and has not expired."""
        payload, dot, signature = token.removeprefix(_PREFIX).partition(".")
        if not (token.startswith(_PREFIX) and dot and token.isascii()):
            return None
        if not hmac.compare_digest(signature, self._signature(payload)):
            return None
        try:
            values = orjson.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
            claims = Claims(str(values["k"]), int(values["e"]), tuple(values["s"]))
        except (binascii.Error, orjson.JSONDecodeError, KeyError, TypeError, ValueError):
            return None
        return claims if now < claims.expires else None

    def _signature(self, payload: str) -> str:
        return _encode(hmac.new(self._key, payload.encode(), hashlib.sha256).digest())


def find_secret(file: str, environment: Mapping[str, str]) -> bytes | None:
    """The secret in `file` or the environment; None: no tokens. Raises `OSError`."""
    if file:
        return Path(file).read_bytes().strip()
    text = environment.get(SECRET_VARIABLE)
    return text.encode() if text else None


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
