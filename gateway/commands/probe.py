"""`voxgate probe`: health checks of containers, without curl in the image."""

from __future__ import annotations

import os
import ssl
from argparse import ArgumentParser, Namespace

from gateway.commands.console import CommandError


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--ready", action="store_true", help="that it really speaks, not only lives"
    )
    parser.add_argument("--url", help="default: this machine, as VOXGATE_* say")
    parser.add_argument("--seconds", type=float, default=6.0, help="to answer in; default: 6")


def run(arguments: Namespace) -> int:
    import httpx

    from gateway.configuration import load

    settings = load({}, os.environ).settings
    scheme = "https" if settings.tls_cert else "http"
    url = arguments.url or f"{scheme}://127.0.0.1:{settings.port}"
    path = "/health/ready" if arguments.ready else "/health"
    # The certificate is for the name that others know; this asks the own machine.
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        answer = httpx.get(url + path, timeout=arguments.seconds, verify=context)
    except httpx.HTTPError as failure:
        raise CommandError(f"No answer at {url}: {failure}") from None
    print(answer.text)
    return 0 if answer.status_code == 200 else 1
