"""What is fuzzed: each target takes bytes and may raise nothing.

What a client can be told is an exception of its own kind and is caught here; anything else that
comes out, a wrong promise too, is a finding.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "gateway"))


def _draw(data: bytes) -> tuple[int, bytes]:
    return (data[0], data[1:]) if data else (0, b"")


def protocol(data: bytes) -> None:
    """One client message."""
    from gateway.protocol import ClientMessage, ProtocolError, parse

    try:
        message = parse(data)
    except ProtocolError as refusal:
        if json.loads(refusal.error.encode())["code"] != refusal.code:
            raise
        return
    assert isinstance(message, ClientMessage)


def audio(data: bytes) -> None:
    """A binary message, as clients read it."""
    from gateway.protocol import HEADER, unpack_audio

    try:
        header, payload = unpack_audio(data)
    except ValueError:
        return
    assert header.pack() + payload == data
    assert len(payload) == len(data) - HEADER.size


def session(data: bytes) -> None:
    """Messages, audio, failures and time, in any order; nothing of the text is lost or twice."""
    from session_harness import Harness

    from engine.api import AudioChunk, SpeechError

    h = Harness()
    texts: list[str] = []
    kinds = ("turn.end", "turn.cancel", "turn.start", "text.flush", "session.update", "ping")
    while data:
        kind, data = _draw(data)
        size, data = _draw(data)
        piece, data = data[: size % 24], data[size % 24 :]
        match kind % 12:
            case 0 | 1 | 2 | 3:
                text = piece.decode("utf-8", "replace")
                h.send("text.append", text=text)
                texts.append(text)
            case 4:
                h.send(kinds[size % len(kinds)])
            case 5:
                h.session.receive(piece.decode("latin-1"), h.now)
            case 6:
                h.session.receive(piece, h.now)
            case 7 if h.engine:
                h.session.audio(next(iter(h.engine)), AudioChunk(_tone(size * 40)), h.now)
            case 8 if h.engine:
                key = next(iter(h.engine))
                h.session.audio(key, AudioChunk(_tone(0), final=True), h.now)
                h.engine.pop(key, None)
            case 9 if h.engine:
                key = next(iter(h.engine))
                error = SpeechError("piece_failed", "x", retryable=bool(size & 1))
                h.engine.pop(key)
                h.session.failed(key, error, h.now)
            case 10:
                h.now += size / 10
                h.session.tick(h.now)
            case _:
                h.take()
        h.settle()
    h.take()
    taken = sum(len(text) for text in texts)
    for done in h.messages("turn.cancelled"):
        assert len(done["spoken"]) + len(done["unspoken"]) <= taken


@functools.cache
def _tone(samples: int) -> Any:
    import numpy as np

    return np.full(samples, 0.2, np.float32)


def cutting(data: bytes) -> None:
    """Pieces join to the text, however it was fragmented, and no piece is too long."""
    from gateway.cutting import Lengths, TurnText

    cut, data = _draw(data)
    text = data.decode("utf-8", "replace")
    whole, parts = TurnText(lengths=Lengths(max_chars=60)), TurnText(lengths=Lengths(max_chars=60))
    pieces = [*whole.feed(text), *whole.finish()]
    size = cut % 7 + 1
    given = []
    for at in range(0, len(text), size):
        given += parts.feed(text[at : at + size])
    given += parts.finish()
    assert [(p.text, p.start, p.end) for p in given] == [(p.text, p.start, p.end) for p in pieces]
    if pieces:
        assert "".join(piece.text for piece in pieces) == text
        assert pieces[0].start == 0
        assert pieces[-1].end == len(text)


def normalisation(data: bytes) -> None:
    """Written text to words, in both languages."""
    from engine.frontend.characters import plain
    from engine.frontend.english_rules import english_words
    from engine.frontend.language import main_language
    from engine.frontend.mandarin_rules import mandarin_words
    from engine.frontend.text import spoken_runs

    text = plain(data.decode("utf-8", "replace"))
    assert isinstance(english_words(text), str)
    assert isinstance(mandarin_words(text), str)
    assert isinstance(spoken_runs(text, main_language(text)), list)


def markup(data: bytes) -> None:
    """Markup out of text, with a map back that covers it."""
    from gateway.spoken import SpokenFilter

    filter_ = SpokenFilter()
    text = data.decode("utf-8", "replace")
    at = 0
    for segment in [*filter_.feed(text), *filter_.flush()]:
        assert segment.start == at
        at = segment.end
        assert not segment.exact or segment.text == text[segment.start : segment.end]
    assert at == len(text)


def headers(data: bytes) -> None:
    """Credentials out of a request; afterwards there are none."""
    from gateway.auth_guard import take_credential
    from gateway.origins import may_connect

    kind, data = _draw(data)
    name = (b"authorization", b"sec-websocket-protocol", b"x-api-key", b"cookie", b"host")[kind % 5]
    query, _, value = data.partition(b"\n")
    scope: dict[str, Any] = {
        "headers": [(name, value)],
        "query_string": query,
        "subprotocols": value.decode("latin-1").split(","),
    }
    take_credential(scope)
    left = dict(scope["headers"])
    assert b"authorization" not in left
    assert b"voxgate.token." not in left.get(b"sec-websocket-protocol", b"")
    assert not take_credential(scope)
    text = value.decode("latin-1")
    may_connect(text, query.decode("latin-1"), ["https://a.example"])


def tokens(data: bytes) -> None:
    """Nothing but what was signed is a token, nothing but a key a key."""
    from gateway.auth_tokens import Signer
    from gateway.keys import KeyRing, make_key

    text = data.decode("utf-8", "surrogateescape")
    assert Signer(b"x" * 32).read(text, 0.0) is None
    assert Signer(b"x" * 32).read("vt_" + text, 0.0) is None
    _, entry = make_key("fuzz")
    assert KeyRing([entry]).find(text.encode("utf-8", "replace").decode(), 0.0) is None


def http(data: bytes) -> None:
    """Bytes of a socket, in two parts, into the protocol of the port."""
    from fuzz_http import feed

    cut, data = _draw(data)
    feed(data, cut)


TARGETS: dict[str, Callable[[bytes], None]] = {
    each.__name__: each
    for each in (
        protocol,
        audio,
        session,
        cutting,
        normalisation,
        markup,
        headers,
        tokens,
        http,
    )
}
MODULES = ("gateway", "engine.frontend")
"""What is instrumented."""
