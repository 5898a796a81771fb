"""The ASGI application and its server: routes, start-up, drain.

The port answers from the first moment, so that probes and pages can say what is going on while the
engine starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import math
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import uvloop
from prometheus_client import ProcessCollector
from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from engine.api import Progress, SpeechError, Synthesizer
from gateway import protocol
from gateway.admission import LOOK_SECONDS, Admission
from gateway.auth import Access, Denied, Principal, as_refusal, charge
from gateway.auth_first import FirstMessage
from gateway.auth_guard import STATE, Guard, give_token, who
from gateway.connection import Connection
from gateway.cutting import Lengths, TurnText
from gateway.door import Door
from gateway.drain import Watched, drain
from gateway.encoding import TimedEncoder
from gateway.errors import ERRORS
from gateway.failures import Failures
from gateway.formats import make_encoder
from gateway.http.apis import Apis
from gateway.http.captions import captions_response
from gateway.http.edge import Edge
from gateway.http.faults import PAGES, fault, not_served
from gateway.http.health import Readiness, json_response
from gateway.http.pages import Pages
from gateway.journal import journal_maker
from gateway.looplag import LoopLag
from gateway.metrics import CONTENT_TYPE, Metrics
from gateway.offer import Offer
from gateway.opus import require_opus
from gateway.origins import may_connect
from gateway.pacing import Refusal
from gateway.pauses import PAUSES, with_milliseconds
from gateway.protocol import Error
from gateway.recording import session_maker
from gateway.runner import Runner
from gateway.server import listen, make_server
from gateway.sessions import Sessions
from gateway.settings import SettingError, Settings
from gateway.slices import Slices
from gateway.spoken import Lexicon, LexiconError, load_lexicon
from gateway.supply import MeteredSynthesizer, Supply
from gateway.tls import watch_certificate
from gateway.transport import unsent_bytes

_log = logging.getLogger("voxgate")
_MAX_PIECE_CHARS = 200
SynthesizerFactory = Callable[[], Synthesizer]


class Gateway:
    """What the routes share: one engine, its sessions, their metrics."""

    def __init__(
        self,
        settings: Settings,
        synthesizer: Synthesizer,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises `KeyFileError`, `TokenSecretError`, `OSError`."""
        self.settings = settings
        self.access = Access(settings, os.environ, clock=clock)
        self.clock = clock
        supply = Supply()
        failures = Failures(settings.ready_failure_share, clock)
        self.synthesizer = synthesizer = MeteredSynthesizer(synthesizer, supply, clock, failures)
        self._slices = Slices()
        self.admission = Admission(settings, supply, clock())
        self.metrics = Metrics()
        self.readiness = Readiness(synthesizer, settings, self.metrics, failures)
        self.connections: set[Watched] = set()
        self.sessions = Sessions(self.metrics, settings.resume_seconds)
        self.progress: Progress | None = None
        self._origins = [part.strip() for part in settings.allowed_origins.split(",")]
        self.on_started: Callable[[Exception | None], None] | None = None
        self.failure: Exception | None = None
        self.started = False
        """Whether the engine was started and really spoke."""
        self.metrics.watch(synthesizer.stats)
        self.metrics.watch_sockets(unsent_bytes)
        ProcessCollector(registry=self.metrics.registry)
        if settings.tls_cert:
            watch_certificate(self.metrics.registry, Path(settings.tls_cert))
        self.metrics.on_underrun = lambda: self.admission.ran_dry(clock())
        # Whoever nearly runs dry now does with one listener more.
        self.metrics.on_close_call = lambda: self.admission.ran_dry(clock())
        self.metrics.watch_admission(
            pressure=lambda: self.admission.pressure(len(self.sessions.live), clock()),
            demand=lambda: self.admission.demand(len(self.sessions.live)),
            capacity=lambda: self.admission.capacity,
        )
        self._make_session = session_maker(settings)
        self._lexicon = self._read_lexicon()
        self._make_journal = journal_maker(settings, self.metrics)
        self.door = Door(
            begin=self._begin,
            refuse=self._refusal,
            client=self._client,
            allowed=self._allowed,
            admit=self._admit,
            synthesizer=synthesizer,
            sessions=self.sessions,
            links=self.connections,
            settings=settings,
        )
        self.apis = Apis(self.door)

    async def start(self) -> None:
        """Start the engine and speak once; `on_started` gets the outcome."""
        try:
            await self.synthesizer.start(self._report)
            status, body = await self.readiness.check()
            if status != 200:
                raise SpeechError(body["reason"], body.get("message", "The engine is not ready."))
        except Exception as failure:
            _log.error("The speech engine could not start: %s", failure)
            self.failure = failure
            self.readiness.failure = str(failure)
        else:
            self._look()
            self.started = True
        if self.on_started is not None:
            self.on_started(self.failure)

    async def watch(self) -> None:
        """Look at engine, sessions and event loop until cancelled."""
        lag = LoopLag(self.metrics.loop_lag)
        self.metrics.loop_lag_longest.set_function(lambda: lag.longest)
        with contextlib.closing(lag):
            while True:
                await asyncio.sleep(LOOK_SECONDS)
                self._look()

    def _look(self) -> None:
        consumers = [runner.session for runner in self.sessions.live]
        self.admission.look(consumers, self.synthesizer.stats(), self.clock())

    def _report(self, doing: str, done: float) -> None:
        self.readiness.progress = (doing, done)
        if self.progress is not None:
            self.progress(doing, done)

    async def drain(self) -> None:
        """Let every session speak what it has; returns when all are closed or time is up."""
        self.readiness.draining = True
        if live := len(self.sessions.live):
            _log.warning(
                "stopping: what %d session%s still hears is finished first, %g s at most; "
                "asked again (Ctrl-C), it stops at once",
                live,
                "" if live == 1 else "s",
                self.settings.drain_seconds,
            )
        await self.apis.drain()
        await drain(self.sessions, self.connections, self.settings)

    def refusal(self, client: str) -> Refusal | None:
        """Why a new session of a client cannot be let in now."""
        if self.readiness.draining:
            return Refusal("draining", ERRORS["draining"].meaning, self.settings.retry_after_ms)
        principal = self.access.principal(client)
        most = self.settings.max_sessions_per_client
        if principal is not None:
            most = principal.key.sessions or most
        if most and self.sessions.of_client(client) >= most:
            message = f"One client may have {most} sessions."
            return Refusal("too_many_sessions", message, self.settings.retry_after_ms)
        stats = self.synthesizer.stats()
        return self.admission.refusal(len(self.sessions.live), stats, self.clock())

    def offer(self) -> Offer:
        """What sessions get from this server."""
        limits = self.synthesizer.limits
        lengths = Lengths(max_chars=min(_MAX_PIECE_CHARS, limits.max_text_chars))
        settings = self.settings
        return Offer(
            voices=self.synthesizer.voices(),
            limits=limits,
            make_text=lambda spoken: TurnText(spoken, lengths),
            lexicon=self._lexicon,
            make_encoder=lambda start: TimedEncoder(
                make_encoder(start, settings.opus_complexity), self.metrics.encoded
            ),
            pauses=with_milliseconds(
                PAUSES,
                clause=settings.clause_pause_ms,
                sentence=settings.sentence_pause_ms,
                paragraph=settings.paragraph_pause_ms,
            ),
        )

    async def stream(self, websocket: WebSocket) -> None:
        """`WS /v1/stream`."""
        headers = websocket.headers
        if not may_connect(headers.get("origin"), headers.get("host"), self._origins):
            self.metrics.session_refused("origin_not_allowed")
            kind = ERRORS["origin_not_allowed"]
            body: dict[str, object] = {"code": "origin_not_allowed", "message": kind.meaning}
            await websocket.send_denial_response(json_response(403, {**body, "hint": kind.hint}))
            return
        client = self._client(websocket)
        known = who(websocket)
        refusal = self.refusal(client)
        error = None
        if isinstance(known, Denied):
            # The first message may still show a token.
            error = self._refused(as_refusal(known))
        elif refusal is not None:
            error = self._refused(refusal)
            # Who comes to resume a session needs no place; only the first message tells.
            if not self.sessions.resumable:
                await self._refuse(websocket, error)
                return
        await websocket.accept()
        runner = self._begin(client, self.settings, error)
        self.sessions.open(runner)
        connection = Connection(
            websocket,
            runner,
            self.sessions,
            self.metrics,
            stall_limit=self.settings.stall_limit_seconds,
            messages_per_second=self.settings.messages_per_second,
            read=FirstMessage(lambda token: self._shown(runner, token)),
        )
        self.connections.add(connection)
        try:
            await connection.run()
        finally:
            self.connections.discard(connection)

    def _begin(self, client: str, settings: Settings, error: Error | None = None) -> Runner:
        """A new session of a client, not yet among the open ones."""
        name = secrets.token_urlsafe(9)
        journal = self._make_journal(name)
        offer = self.offer()
        session = self._make_session(
            name,
            settings,
            offer,
            journal,
            self.clock(),
            token=secrets.token_urlsafe(24),
            refusal=error,
        )
        session.intake.charge = self._charge(client)
        runner = Runner(
            session,
            self.synthesizer,
            self.metrics,
            client=client,
            clock=self.clock,
            slices=self._slices,
            voices={voice.id: voice.key for voice in offer.voices if voice.key},
        )
        runner.over.add_done_callback(lambda _: journal.close(runner.ended or "disconnected"))
        return runner

    def _allowed(self, connection: HTTPConnection) -> bool:
        headers = connection.headers
        return may_connect(headers.get("origin"), headers.get("host"), self._origins)

    def _admit(self, connection: HTTPConnection, key: str | None) -> Denied | None:
        known = who(connection)
        if isinstance(known, Denied) and key:
            known = self.access.enter(key, "speak")
            connection.scope[STATE] = known
        return known if isinstance(known, Denied) else None

    def _client(self, connection: HTTPConnection) -> str:
        principal = who(connection)
        if isinstance(principal, Principal):
            return principal.client
        header = self.settings.client_header
        named = connection.headers.get(header) if header else None
        return named or (connection.client.host if connection.client else "")

    def _shown(self, runner: Runner, token: str) -> None:
        """A token came in the first message."""
        if not self.access.enabled or self.access.principal(runner.client) is not None:
            return
        found = self.access.enter(token, "speak")
        if isinstance(found, Denied):
            refusal: Refusal | None = as_refusal(found)
        else:
            refusal = self.refusal(found.client)
            self.sessions.belongs(runner, found.client)
            runner.session.intake.charge = self._charge(found.client)
        runner.session.admit(None if refusal is None else self._refused(refusal))

    def _charge(self, client: str) -> Callable[[int, float], None] | None:
        """What counts the text of a session against its key."""
        principal = self.access.principal(client)
        return charge(principal) if principal is not None else None

    def _read_lexicon(self) -> Lexicon:
        """Raises `SettingError`."""
        try:
            return load_lexicon(self.settings.lexicon_file)
        except (LexiconError, OSError) as failure:
            raise SettingError(f"lexicon_file: {failure}") from failure

    def reload(self) -> None:
        """Read keys and lexicon again; sessions of keys that are no longer in force end, new ones
        get the new lexicon. Raises `KeyFileError`, `SettingError`, `OSError`."""
        self.access.reload()
        self._lexicon = self._read_lexicon()
        for runner in list(self.sessions.live):
            if not self.access.in_force(runner.client):
                runner.dismiss("unauthorized")

    def voice_files(self) -> Sequence[Path]:
        return self.synthesizer.voice_files()

    async def reload_voices(self) -> None:
        """New sessions get the voices there are now. Raises `ValueError`, `OSError`."""
        await self.synthesizer.reload_voices()

    def _refusal(self, client: str) -> Refusal | None:
        refusal = self.refusal(client)
        if refusal is not None:
            self.metrics.session_refused(refusal.code)
        return refusal

    def _refused(self, refusal: Refusal) -> Error:
        self.metrics.session_refused(refusal.code)
        return Error(
            code=refusal.code,
            message=refusal.message,
            hint=ERRORS[refusal.code].hint,
            fatal=True,
            retry_after_ms=refusal.retry_after_ms,
        )

    async def _refuse(self, websocket: WebSocket, error: Error) -> None:
        kind = ERRORS[error.code]
        if "origin" not in websocket.headers:
            seconds = math.ceil((error.retry_after_ms or 0) / 1000)
            headers = {"retry-after": str(seconds), "cache-control": "no-store"}
            answer = Response(error.encode(), kind.status, headers, "application/json")
            await websocket.send_denial_response(answer)
            return
        # A page is not told why a handshake failed.
        await websocket.accept()
        with contextlib.suppress(WebSocketDisconnect):
            await websocket.send_text(error.encode())
            await websocket.close(kind.close or 1013, error.code)

    async def captions(self, request: Request) -> Response:
        """`GET /v1/sessions/{id}/captions.vtt`."""
        transcript = self.sessions.transcript(request.path_params["session"])
        return captions_response(transcript, request.query_params)

    async def health(self, _: Request) -> Response:
        """`GET /health`: the process lives; what state it is in."""
        stats = self.synthesizer.stats()
        body: dict[str, object] = {
            "status": "ok",
            "engine": stats.state,
            "sessions": len(self.sessions.live),
            "draining": self.readiness.draining,
        }
        return json_response(200, body)

    async def health_ready(self, _: Request) -> Response:
        """`GET /health/ready`: 200 when a piece was really spoken, else 503 and the reason."""
        status, body = await self.readiness.check()
        return json_response(status, body)

    async def metrics_page(self, _: Request) -> Response:
        """`GET /metrics`."""
        return Response(self.metrics.render(), media_type=CONTENT_TYPE)


def routes(gateway: Gateway, pages: Pages) -> list[BaseRoute]:
    """Every path this server answers."""
    return [
        WebSocketRoute(protocol.PATH, gateway.stream),
        Route("/v1/sessions/{session}/captions.vtt", gateway.captions),
        Route("/v1/tokens", give_token(gateway.access), methods=["POST"]),
        Route("/health", gateway.health),
        Route("/health/ready", gateway.health_ready),
        Route("/metrics", gateway.metrics_page),
        *gateway.apis.routes(),
        Route(PAGES, pages.serve),
    ]


def create_app(settings: Settings, synthesizer_factory: SynthesizerFactory) -> Starlette:
    """The application; its lifespan starts the engine beside the server and closes it at the end.

    `app.state.gateway` is the `Gateway`.
    """
    gateway = Gateway(settings, synthesizer_factory())

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await gateway.apis.start()
        tasks = [asyncio.create_task(gateway.start()), asyncio.create_task(gateway.watch())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await gateway.apis.close()
            await gateway.sessions.clear()
            await gateway.synthesizer.close()

    pages = Pages()
    faults = {404: not_served, 405: not_served, Exception: fault}
    app = Starlette(routes=routes(gateway, pages), lifespan=lifespan, exception_handlers=faults)
    app.add_middleware(
        Guard,
        access=gateway.access,
        settings=settings,
        pages=pages.paths,
        denied=gateway.metrics.session_refused,
    )
    app.add_middleware(Edge, allowed=gateway.door.allowed)
    app.state.gateway = gateway
    return app


def serve(
    settings: Settings,
    synthesizer_factory: SynthesizerFactory,
    on_ready: Callable[[str], None] | None = None,
    progress: Progress | None = None,
) -> None:
    """Run until a signal. `on_ready` gets the URL once speech was really made.

    Raises `OpusMissingError`, `OSError` when the port cannot be had, and what the engine raises
    when it cannot start.
    """
    require_opus()
    with listen(settings) as listener:
        host, port = listener.getsockname()[:2]
        scheme = "https" if settings.tls_cert else "http"
        url = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
        app = create_app(settings, synthesizer_factory)
        gateway: Gateway = app.state.gateway
        gateway.progress = progress
        server = make_server(app, settings)

        def started(failure: Exception | None) -> None:
            if failure is not None:
                server.should_exit = True
                return
            # What there is now stays; to look through it again and again takes tens of milliseconds
            # of everybody's time.
            gc.collect()
            gc.freeze()
            # Or the next full collection waits until a quarter of all that has come anew.
            gc.collect()
            if on_ready is not None:
                on_ready(url)

        gateway.on_started = started
        uvloop.run(server.serve(sockets=[listener]))
        if gateway.failure is not None:
            raise gateway.failure
