"""TLS of the port: a context that can take a renewed certificate while it runs, and its expiry."""

from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge

from gateway.settings import SettingError, Settings

_UTC_TIME = 0x17
"""The other one is GeneralizedTime, from 2050 on."""


def make_context(settings: Settings) -> ssl.SSLContext | None:
    """None without a certificate. Raises `SettingError` for files that do not fit."""
    if not settings.tls_cert:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(["http/1.1"])
    load_certificate(context, settings)
    if settings.tls_client_ca:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(settings.tls_client_ca)
        except (OSError, ssl.SSLError) as failure:
            raise SettingError(f"tls_client_ca: {settings.tls_client_ca}: {failure}") from None
    return context


def load_certificate(context: ssl.SSLContext, settings: Settings) -> None:
    """Use the files as they are now, for new connections. Raises `SettingError`."""
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except (OSError, ssl.SSLError) as failure:
        where = f"tls_cert {settings.tls_cert}, tls_key {settings.tls_key}"
        raise SettingError(f"{where}: {failure}") from None


def watch_certificate(registry: CollectorRegistry, certificate: Path) -> None:
    """Tell at every scrape when the file's certificate expires; 0 when it cannot be read."""

    def at() -> float:
        try:
            return expiry(certificate)
        except (OSError, ValueError):
            return 0.0

    gauge = Gauge(
        "voxgate_certificate_expiry_seconds",
        "Unix time at which the TLS certificate of this port expires.",
        registry=registry,
    )
    gauge.set_function(at)


def expiry(certificate: Path) -> float:
    """Unix time at which the first certificate of a PEM file expires. Raises `ValueError`."""
    pem = re.search(
        r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----",
        certificate.read_text(encoding="ascii", errors="replace"),
        re.DOTALL,
    )
    if pem is None:
        raise ValueError(f"{certificate} holds no certificate.")
    # RFC 5280: Certificate > TBSCertificate > version? serial, signature, issuer, validity.
    _, certificate_body, _ = _element(ssl.PEM_cert_to_DER_cert(pem[0]))
    _, rest, _ = _element(certificate_body)
    tag, _, after = _element(rest)
    if tag == 0xA0:
        rest = after
    for _ in range(3):
        _, _, rest = _element(rest)
    _, validity, _ = _element(rest)
    _, _, second = _element(validity)
    tag, text, _ = _element(second)
    form = "%y%m%d%H%M%SZ" if tag == _UTC_TIME else "%Y%m%d%H%M%SZ"
    return datetime.strptime(text.decode("ascii"), form).replace(tzinfo=UTC).timestamp()


def _element(der: bytes) -> tuple[int, bytes, bytes]:
    """Tag and content of the first DER element, and what follows it."""
    if len(der) < 2:
        raise ValueError("The certificate breaks off.")
    tag, length, at = der[0], der[1], 2
    if length & 0x80:
        count = length & 0x7F
        length, at = int.from_bytes(der[2 : 2 + count]), 2 + count
    if at + length > len(der):
        raise ValueError("The certificate breaks off.")
    return tag, der[at : at + length], der[at + length :]
