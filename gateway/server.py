"""The port: its socket, uvicorn behind it, and the signals that stop it or make it read again."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import uvicorn
from starlette.applications import Starlette

from gateway.limits import GuardedStream, guarded_http, spare_descriptors
from gateway.settings import Settings
from gateway.tls import load_certificate, make_context

_log = logging.getLogger("voxgate")
_SEND_BUFFER_BYTES = 65_536
_TCP_KEEPALIVE = {socket.TCP_KEEPIDLE: 10, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 3}
"""Seconds, seconds, probes: a dead peer is found after 25 s."""


class Served(Protocol):
    """What a server needs of the gateway."""

    async def drain(self) -> None:
        """Let every session finish."""

    def reload(self) -> None:
        """Read files again. Raises `ValueError` or `OSError`; what was in force stays then."""

    def voice_files(self) -> Sequence[Path]:
        """What says which voices there are."""

    async def reload_voices(self) -> None:
        """Read them again; raises as `reload` does."""


class Server(uvicorn.Server):
    """uvicorn, but a signal first lets the sessions finish; a second one does not wait. SIGHUP
    reads keys, lexicon, certificate and voices again."""

    def __init__(
        self,
        config: uvicorn.Config,
        gateway: Served,
        reload_certificate: Callable[[], None] = lambda: None,
        settings: Settings | None = None,
    ) -> None:
        super().__init__(config)
        self._settings = settings or Settings()
        self._watching: asyncio.Task[None] | None = None
        self._rereading: asyncio.Task[None] | None = None
        self._gateway = gateway
        self._reload_certificate = reload_certificate
        self._draining: asyncio.Task[None] | None = None
        self._terminal = _has_terminal()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if threading.current_thread() is threading.main_thread():
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._hang_up)

        if self._settings.reload_seconds:
            self._watching = asyncio.create_task(self._watch())

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._watching is not None:
            self._watching.cancel()
        await super().shutdown(sockets)
        if self.force_exit:
            # Else it would be cancelled with the loop, which uvicorn reports as an error.
            await self.lifespan.shutdown()

    async def _watch(self) -> None:
        """Read again when a file was changed: secrets that a cluster renews send no signal."""
        before = self._state()
        while True:
            await asyncio.sleep(self._settings.reload_seconds)
            now = self._state()
            if now != before:
                before = now
                self.reload()

    def _hang_up(self) -> None:
        """SIGHUP: somebody asks for a reload, or the terminal it was started from was closed."""
        if self._terminal and not _has_terminal():
            self.handle_exit(signal.SIGHUP, None)
        else:
            self.reload()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._draining is None:
            self._draining = asyncio.ensure_future(self.drain())
        else:
            self.should_exit = self.force_exit = True

    async def drain(self) -> None:
        """Stop once the sessions are over, at the latest after `drain_seconds`."""
        await self._gateway.drain()
        self.should_exit = True

    def reload(self) -> None:
        """Read again what may change while it runs; a file that is wrong changes nothing."""
        parts = {"keys and lexicon": self._gateway.reload, "TLS": self._reload_certificate}
        for what, read in parts.items():
            try:
                read()
            except (ValueError, OSError) as failure:
                _log.error("reload of %s: %s; what was read before stays in force", what, failure)
            else:
                _log.info("reload of %s: done", what)
        self._rereading = asyncio.ensure_future(self._reload_voices())

    async def _reload_voices(self) -> None:
        try:
            await self._gateway.reload_voices()
        except (ValueError, OSError) as failure:
            _log.error("reload of voices: %s; those of before stay", failure)
        else:
            _log.info("reload of voices: done")

    def _state(self) -> list[tuple[int, int, int] | None]:
        """What tells that a file is another one: of links too, which is how clusters renew."""
        settings = self._settings
        files = [settings.keys_file, settings.lexicon_file, settings.tls_cert, settings.tls_key]
        found: list[tuple[int, int, int] | None] = []
        for file in [*files, *map(str, self._gateway.voice_files())]:
            try:
                entry = os.stat(file) if file else None
            except OSError:
                entry = None
            found.append((entry.st_mtime_ns, entry.st_size, entry.st_ino) if entry else None)
        return found


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def listen(settings: Settings) -> socket.socket:
    """The listening socket. Raises `OSError`, with what to do about a port in use.

    A fixed send buffer: the kernel would let it grow to megabytes, minutes of audio, before a slow
    reader is noticed.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        # Finds dead peers of plain HTTP too, which has no pings.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _TCP_KEEPALIVE.items():
            listener.setsockopt(socket.IPPROTO_TCP, option, value)
        listener.bind((settings.host, settings.port))
    except OSError as failure:
        listener.close()
        if failure.errno == errno.EADDRINUSE:
            raise OSError(
                failure.errno,
                f"Port {settings.port} on {settings.host} is in use; choose another with --port "
                "or stop what uses it.",
            ) from None
        raise
    return listener


def make_server(app: Starlette, settings: Settings) -> Server:
    """uvicorn for this application; `serve(sockets=[listen(settings)])` runs it.

    Raises `SettingError` for a certificate that cannot be used.
    """
    context = make_context(settings)
    options: dict[str, Any] = {}
    if context is not None:
        ready: ssl.SSLContext = context
        options["ssl_context_factory"] = lambda _config, _default: ready
    config = uvicorn.Config(
        app,
        http=guarded_http(settings, spare_descriptors(settings)),
        ws=GuardedStream,
        ws_max_size=settings.max_message_bytes,
        ws_ping_interval=settings.ping_interval_seconds,
        ws_ping_timeout=settings.ping_timeout_seconds,
        ws_per_message_deflate=False,
        proxy_headers=settings.behind_proxy,
        forwarded_allow_ips="*" if settings.behind_proxy else "",
        timeout_graceful_shutdown=5,
        log_config=None,
        access_log=False,
        server_header=False,
        **options,
    )

    def reload_certificate() -> None:
        if context is not None:
            load_certificate(context, settings)

    return Server(config, app.state.gateway, reload_certificate, settings)
