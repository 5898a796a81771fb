"""The HTTP that is described is the HTTP that is served."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from fake_engine import FakeSynthesizer, Script
from gateway_conftest import run_gateway
from hypothesis import HealthCheck, settings
from schemathesis import checks
from schemathesis.specs.openapi import checks as openapi_checks
from starlette.routing import Route

from gateway.app import create_app
from gateway.http.openapi import document
from gateway.settings import Settings

METHODS = ("get", "post", "delete")
CHECKS = [
    checks.not_a_server_error,
    openapi_checks.status_code_conformance,
    openapi_checks.content_type_conformance,
    openapi_checks.response_schema_conformance,
    openapi_checks.negative_data_rejection,
]
"""That valid requests are always honoured is not among them: no schema says which texts can be
spoken and which voices there are."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A gateway with a scripted engine in a thread of its own."""
    ready, stop = threading.Event(), threading.Event()
    found = []

    async def serve() -> None:
        engine = FakeSynthesizer(lambda *_: Script(samples=480))
        async with run_gateway(engine, max_jobs=10_000) as running:
            found.append(running.url)
            ready.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(30)
    yield found[0]
    stop.set()
    thread.join()


described = schemathesis.openapi.from_dict(document())


@described.parametrize()
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
def test_what_is_described_is_served(case: schemathesis.Case, url: str) -> None:
    case.call_and_validate(base_url=url, checks=CHECKS, timeout=30)


def test_every_route_is_described() -> None:
    app = create_app(Settings(), FakeSynthesizer)
    routes: list[Any] = []
    for route in app.routes:
        if isinstance(route, Route) and route.path != "/{path:path}":
            methods = (route.methods or set()) - {"HEAD"}
            routes += [(route.path, method.lower()) for method in methods]
    paths = document()["paths"]
    assert set(routes) == {
        (path, method) for path, item in paths.items() for method in item if method in METHODS
    }
