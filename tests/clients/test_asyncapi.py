"""The WebSocket that is described is the one that is served: every message of a real session, and
of sessions with faults, is what the document says; what the document allows is taken."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import jsonschema
import pytest
from fake_engine import FakeSynthesizer, Script
from gateway_conftest import Run, Running
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from engine.api import SpeechError
from gateway.http.asyncapi import document
from gateway.protocol import CLIENT_MESSAGES, SERVER_MESSAGES, ProtocolError, parse, unpack_audio

DOCUMENT = document()
SCHEMAS = DOCUMENT["components"]["schemas"]


def schema_of(name: str) -> dict[str, Any]:
    """The payload's schema of a message, with all it refers to."""
    message = DOCUMENT["components"]["messages"][name]
    return {**message["payload"], "components": {"schemas": SCHEMAS}}


def names(operation: str) -> set[str]:
    messages = DOCUMENT["operations"][operation]["messages"]
    return {each["$ref"].rsplit("/", 1)[1] for each in messages}


def test_every_message_is_described() -> None:
    assert names("send") == set(CLIENT_MESSAGES)
    assert names("receive") == {*SERVER_MESSAGES, "audio"}
    for name in (*CLIENT_MESSAGES, *SERVER_MESSAGES):
        jsonschema.Draft202012Validator.check_schema(schema_of(name))


async def _all(connection: ClientConnection) -> set[str]:
    """Names of all messages until the end, each of which is as described."""
    seen = set()
    with contextlib.suppress(ConnectionClosed):
        while True:
            raw = await connection.recv()
            if isinstance(raw, bytes):
                assert unpack_audio(raw)[1]
                seen.add("audio")
                continue
            message = json.loads(raw)
            seen.add(message["type"])
            jsonschema.validate(message, schema_of(message["type"]))
    return seen


async def _say(running: Running, *messages: dict[str, Any]) -> set[str]:
    async with connect(f"ws://127.0.0.1:{running.port}/v1/stream") as connection:
        for message in messages:
            jsonschema.validate(message, schema_of(message["type"]))
            await connection.send(json.dumps(message))
        return await _all(connection)


async def test_what_the_server_sends_is_as_described(run: Run) -> None:
    engine = FakeSynthesizer(
        lambda request, _: Script(
            fail_after=0 if "Bad" in request.text else None, error=SpeechError("runaway", "No end.")
        )
    )
    async with run(engine) as running:
        seen = await _say(
            running,
            {"type": "ping", "id": "a"},
            {"type": "session.start", "resume": True, "seed": 5, "format": "pcm_s16le"},
            {"type": "text.append", "text": "One. Bad one. Two."},
            {"type": "text.flush", "id": "b"},
            {"type": "session.update", "speed": 1.5},
            {"type": "turn.start"},
            {"type": "text.append", "text": "Never spoken."},
            {"type": "turn.cancel", "turn": 2, "played_ms": 0},
            {"type": "playback", "turn": 1, "played_ms": 5.0, "paused": False},
            {"type": "turn.end"},
            {"type": "session.end"},
        )
    assert {"session.started", "turn.started", "caption", "audio", "flush.done"} <= seen
    assert {"turn.done", "turn.cancelled", "session.updated", "session.ended", "error"} <= seen


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 2**54),
    st.sampled_from([10, 20, 24_000, 16_000, 500]),
    # JSON Schema takes 1.0 for an integer, which nobody sends.
    st.integers(-2, 9).map(lambda number: number + 0.5),
    st.sampled_from(["turn", "piece", "opus", "x" * 200]),
    st.text(max_size=20),
    st.just([]),
    st.just({}),
)


@pytest.mark.parametrize("name", list(CLIENT_MESSAGES))
def test_what_the_document_allows_is_taken_and_nothing_else(name: str) -> None:
    fields = [field for field in CLIENT_MESSAGES[name].model_fields if field != "type"]
    validator = jsonschema.Draft202012Validator(schema_of(name))

    @settings(max_examples=120, deadline=None)
    @given(st.fixed_dictionaries({}, optional=dict.fromkeys([*fields, "unknown"], VALUES)))
    def check(values: dict[str, Any]) -> None:
        message = {"type": name, **values}
        try:
            taken = parse(json.dumps(message)).type == name
        except ProtocolError:
            taken = False
        assert taken == validator.is_valid(message)

    check()
