"""Settings that are each fine and together are not: refused at start-up, with the reason."""

from __future__ import annotations

import ipaddress
import os
import stat
from pathlib import Path

from gateway.settings import SettingError, Settings


def check(settings: Settings, *, has_secret: bool = False) -> None:
    """Raises `SettingError` that names every unsafe combination and a way out of each.

    `has_secret`: the environment has the secret that signs tokens.
    """
    problems = [*_exposure(settings), *_contradictions(settings, has_secret), *_files(settings)]
    if problems:
        raise SettingError("\n".join(["This is not safe to run:", *(f"- {p}" for p in problems)]))


def is_public(host: str) -> bool:
    """Whether others than this machine can reach an address to listen on."""
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"


def _exposure(settings: Settings) -> list[str]:
    if not is_public(settings.host) or settings.insecure:
        return []
    problems = []
    where = f"{settings.host} can be reached by others than this machine"
    if not settings.keys_file and not settings.tls_client_ca:
        problems.append(
            f"{where}, and nobody is asked for a key. Make one: voxgate keys add NAME "
            "--file keys.json; then --keys-file keys.json. Or say --insecure."
        )
    if not settings.tls_cert and not settings.behind_proxy:
        problems.append(
            f"{where}, and keys and text go in the clear. Set --tls-cert and --tls-key; or "
            "--behind-proxy, if a proxy does it; or say --insecure."
        )
    if settings.log_text and not settings.keys_file:
        problems.append("log_text writes what strangers say into the log. Leave one of them out.")
    return problems


def _contradictions(settings: Settings, has_secret: bool) -> list[str]:
    problems = []
    if bool(settings.tls_cert) != bool(settings.tls_key):
        problems.append("TLS needs both, tls_cert and tls_key; one is missing.")
    if settings.tls_client_ca and not settings.tls_cert:
        problems.append("tls_client_ca asks clients for certificates, which needs tls_cert too.")
    if settings.tls_cert and settings.behind_proxy:
        problems.append(
            "behind_proxy believes headers that say who a client is; with TLS of its own this "
            "port looks open to clients. Choose one."
        )
    if settings.client_header and not settings.behind_proxy and is_public(settings.host):
        problems.append(
            "client_header is believed, but without behind_proxy anybody can send it and pass "
            "every limit. Set --behind-proxy, or leave it out."
        )
    if (has_secret or settings.token_secret_file) and not settings.keys_file:
        problems.append("Tokens are given out for keys, and there is no keys_file.")
    if "*" in settings.allowed_origins and not settings.keys_file and not settings.insecure:
        problems.append(
            "allowed_origins is *, and there are no keys: any page a user opens could speak here. "
            "Name the origins, use keys, or say --insecure."
        )
    return problems


def _files(settings: Settings) -> list[str]:
    problems = []
    for name in ("tls_key", "token_secret_file", "keys_file"):
        path = Path(getattr(settings, name))
        if not getattr(settings, name):
            continue
        try:
            mode = path.stat().st_mode
        except OSError as failure:
            problems.append(f"{name}: {path}: {failure.strerror}.")
            continue
        readers = "everybody" if mode & stat.S_IROTH else None
        if name == "keys_file":
            # The group may read hashes; who can write them can let anybody in.
            readers = "everybody" if mode & stat.S_IWOTH else None
        if readers and os.name == "posix":
            verb = "written" if name == "keys_file" else "read"
            problems.append(f"{name}: {path} can be {verb} by {readers}. Type: chmod 600 {path}")
    return problems
