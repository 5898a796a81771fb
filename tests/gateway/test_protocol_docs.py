"""docs/protocol.md says what the code does: every table both ways, and the example is played."""

from __future__ import annotations

import asyncio
import json
import re
import struct
import types
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from conftest import Run
from fake_engine import LIMITS
from websockets.asyncio.client import connect

from gateway import protocol
from gateway.errors import ERRORS
from gateway.protocol import CLIENT_MESSAGES, HEADER, SERVER_MESSAGES, AudioHeader
from gateway.settings import Settings

DOCS = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text(encoding="utf-8")


def section(title: str, level: int = 2) -> str:
    """The text under a heading, up to the next one of its level or above."""
    start = re.search(rf"^{'#' * level} {re.escape(title)}$", DOCS, re.MULTILINE)
    assert start, f"no heading {title}"
    rest = DOCS[start.end() :]
    end = re.search(rf"^#{{1,{level}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def table(text: str) -> list[list[str]]:
    """Rows of the first table, without its head."""
    rows = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def named(cell: str) -> str:
    match = re.fullmatch(r"`([^`]+)`", cell)
    assert match, f"{cell} is not a name"
    return match[1]


def subsections(title: str) -> list[str]:
    return [named(name) for name in re.findall(r"^### (.+)$", section(title), re.MULTILINE)]


def test_every_message_has_its_section() -> None:
    assert subsections("Client messages") == list(CLIENT_MESSAGES)
    assert sorted(subsections("Server messages")) == sorted(SERVER_MESSAGES)


@pytest.mark.parametrize("kind", CLIENT_MESSAGES)
def test_client_messages_have_these_fields(kind: str) -> None:
    schema = CLIENT_MESSAGES[kind].model_json_schema()
    actual = {}
    for name, field in schema["properties"].items():
        if name == "type":
            continue
        default = f"`{json.dumps(field.get('default'))}`".replace("`null`", "none")
        if name in schema.get("required", ()):
            default = "required"
        actual[name] = (field.get("anyOf", [field])[0]["type"], default)
    documented = {named(row[0]): (row[1], row[2]) for row in table(section(f"`{kind}`", level=3))}
    assert documented == actual


JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", dict: "object"}


def json_type(hint: Any) -> str:
    """What the docs call the type of a server message's field."""
    parts = [part for part in get_args(hint) if part is not types.NoneType]
    if isinstance(hint, types.UnionType):
        return json_type(parts[0]) + ", optional"
    if get_origin(hint) is list:
        return "array of strings" if get_args(hint) == (str,) else "array of objects"
    return JSON_TYPES[get_origin(hint) or hint]


@pytest.mark.parametrize("kind", SERVER_MESSAGES)
def test_server_messages_have_these_fields(kind: str) -> None:
    model = SERVER_MESSAGES[kind]
    hints = get_type_hints(model)
    actual = {field.name: json_type(hints[field.name]) for field in fields(model)}
    documented = {named(row[0]): row[1] for row in table(section(f"`{kind}`", level=3))}
    assert documented == actual


def test_every_error_is_listed_with_its_meaning_and_close_code() -> None:
    documented = {
        named(code): (meaning, int(close) if close else None)
        for code, close, meaning in table(section("Errors"))
    }
    assert documented == {code: (kind.meaning, kind.close) for code, kind in ERRORS.items()}
    assert all(kind.hint for kind in ERRORS.values())


def test_the_header_lies_as_described() -> None:
    sizes = {"u8": 1, "u16": 2, "u32": 4, "u64": 8}
    codes = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q"}
    rows = table(section("Audio messages"))
    offset = 0
    for row in rows:
        assert int(row[0]) == offset
        assert offset % sizes[row[1]] == 0
        offset += sizes[row[1]]
    assert offset == HEADER.size == 24
    form = "<" + "".join(codes[row[1]] for row in rows)
    assert struct.Struct(form).format == HEADER.format
    assert f'"{form}"' in section("Audio messages")
    assert [named(row[2]) for row in rows] == ["version", *AudioHeader._fields]
    kinds = next(row[3] for row in rows if row[2] == "`kind`")
    assert [int(number) for number in re.findall(r"(\d+):", kinds)] == [
        kind.value for kind in protocol.AudioKind
    ]


async def test_the_limits_are_those_of_the_server(run: Run) -> None:
    async with run() as running, running.client() as client:
        actual = client.started.limits
    documented = {named(row[0]): row[1] for row in table(section("Limits"))}
    assert list(documented) == list(actual)
    for name, default in documented.items():
        if default == "engine":
            assert actual[name] == getattr(LIMITS, name)
        else:
            assert float(default) == actual[name]
    assert actual["append_chars"] == Settings().max_append_chars


def matches(expected: Any, actual: Any) -> bool:
    """Whether all that is expected is there; more may be."""
    if isinstance(expected, dict):
        return all(key in actual and matches(expected[key], actual[key]) for key in expected)
    return bool(expected == actual)


async def test_the_example_is_played_as_written(run: Run) -> None:
    block = re.search(r"```session\n(.*?)```", DOCS, re.DOTALL)
    assert block
    lines = [(line[0], line[2:]) for line in block[1].splitlines()]
    async with run() as running:
        url = running.url.replace("http", "ws") + protocol.PATH
        async with connect(url, compression=None) as peer, asyncio.timeout(60):
            held: str | bytes | None = None
            for side, line in lines:
                if side == ">":
                    protocol.parse(line)
                    await peer.send(line)
                elif line == "audio":
                    held = await peer.recv()
                    assert isinstance(held, bytes)
                    while isinstance(held, bytes):
                        protocol.unpack_audio(held)
                        held = await peer.recv()
                else:
                    raw = held if held is not None else await peer.recv()
                    held = None
                    assert matches(json.loads(line), json.loads(raw)), raw
