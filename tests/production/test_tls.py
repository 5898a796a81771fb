from __future__ import annotations

import asyncio
import json
import shutil
import ssl
from pathlib import Path

import pytest
from gateway_conftest import Run, Running
from prometheus_client.parser import text_string_to_metric_families
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidMessage

from gateway.settings import SettingError, Settings
from gateway.tls import expiry, make_context

CERTIFICATES = Path(__file__).parent / "certificates"
HERE = {"tls_cert": str(CERTIFICATES / "server.pem"), "tls_key": str(CERTIFICATES / "server.key")}


def trusting(certificate: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(CERTIFICATES / "ca.pem"))
    if certificate is not None:
        context.load_cert_chain(
            CERTIFICATES / f"{certificate}.pem", CERTIFICATES / f"{certificate}.key"
        )
    return context


async def speaks(running: Running, context: ssl.SSLContext) -> bool:
    url = running.url.replace("http", "wss") + "/v1/stream"
    async with connect(url, ssl=context) as peer:
        await peer.send('{"type": "session.start"}')
        return bool(json.loads(await peer.recv())["type"] == "session.started")


async def get(running: Running, path: str, context: ssl.SSLContext) -> tuple[str, str]:
    """Head and body; the subject of the certificate is in `shown`."""
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port, ssl=context)
    writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return head, body


async def shown(running: Running) -> str:
    """Whose certificate the server shows."""
    _, writer = await asyncio.open_connection("127.0.0.1", running.port, ssl=trusting())
    certificate = writer.get_extra_info("peercert")
    writer.close()
    return dict(pair[0] for pair in certificate["subject"])["commonName"]


async def test_sessions_over_tls(run: Run) -> None:
    async with run(**HERE) as running:
        assert await speaks(running, trusting())
        head, _ = await get(running, "/health", trusting())
        assert "strict-transport-security: max-age=" in head
        with pytest.raises(ssl.SSLCertVerificationError):
            await get(running, "/health", ssl.create_default_context())


async def test_old_versions_of_tls_are_refused(run: Run) -> None:
    context = trusting()
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("DEFAULT@SECLEVEL=0")
    async with run(**HERE) as running:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await get(running, "/health", context)


async def test_clients_show_a_certificate_where_that_is_asked(run: Run) -> None:
    async with run(**HERE, tls_client_ca=str(CERTIFICATES / "ca.pem")) as running:
        assert await speaks(running, trusting("client"))
        with pytest.raises((OSError, InvalidMessage)):
            await speaks(running, trusting())


async def test_a_renewed_certificate_is_used_after_a_reload(run: Run, tmp_path: Path) -> None:
    names = {name: tmp_path / f"server.{name}" for name in ("pem", "key")}
    for name, path in names.items():
        shutil.copy(CERTIFICATES / f"server.{name}", path)
    async with run(tls_cert=str(names["pem"]), tls_key=str(names["key"])) as running:
        assert await shown(running) == "server.test"
        for name, path in names.items():
            shutil.copy(CERTIFICATES / f"renewed.{name}", path)
        assert await shown(running) == "server.test"
        running.server.reload()
        assert await shown(running) == "renewed.test"
        names["pem"].write_text("broken")
        running.server.reload()
        assert await shown(running) == "renewed.test"


async def test_its_expiry_is_measured(run: Run) -> None:
    assert expiry(CERTIFICATES / "server.pem") == ssl.cert_time_to_seconds(
        "Nov  6 22:44:27 2126 GMT"
    )
    async with run(**HERE) as running:
        _, page = await get(running, "/metrics", trusting())
    found = {
        sample.name: sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
    assert found["voxgate_certificate_expiry_seconds"] == expiry(CERTIFICATES / "server.pem")


@pytest.mark.parametrize(
    "text", ["", "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----"]
)
def test_what_is_no_certificate_has_no_expiry(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.pem"
    path.write_text(text)
    with pytest.raises(ValueError, match="certificate"):
        expiry(path)


def test_files_that_do_not_fit_are_named() -> None:
    with pytest.raises(SettingError, match="tls_key"):
        make_context(Settings(tls_cert=HERE["tls_cert"], tls_key=str(CERTIFICATES / "client.key")))
    with pytest.raises(SettingError, match="tls_client_ca"):
        make_context(Settings(**HERE, tls_client_ca="/nowhere"))  # type: ignore[arg-type]
