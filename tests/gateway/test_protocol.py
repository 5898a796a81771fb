from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import protocol
from gateway.errors import ERRORS
from gateway.protocol import (
    AudioFlag,
    AudioHeader,
    AudioKind,
    Error,
    ProtocolError,
    SessionStart,
    parse,
    unpack_audio,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def refused(raw: str) -> Error:
    with pytest.raises(ProtocolError) as caught:
        parse(raw)
    return caught.value.error


@pytest.mark.parametrize(
    ("raw", "code", "field"),
    [
        ("", "bad_json", None),
        ("{", "bad_json", None),
        ("[]", "bad_json", None),
        ("3", "bad_json", None),
        ('"text.append"', "bad_json", None),
        ("[" * 5000, "bad_json", None),
        ('{"type":"text.append","text":"\\ud800"}', "bad_json", None),
        ("{}", "unknown_type", None),
        ('{"type":null}', "unknown_type", None),
        ('{"type":7}', "unknown_type", None),
        ('{"type":"text.apend","text":"a"}', "unknown_type", None),
        ('{"type":"text.append"}', "bad_field", "text"),
        ('{"type":"text.append","text":7}', "bad_field", "text"),
        ('{"type":"text.append","text":null}', "bad_field", "text"),
        ('{"type":"session.start","speed":"fast"}', "bad_field", "speed"),
        ('{"type":"session.start","speed":NaN}', "bad_field", "speed"),
        ('{"type":"session.start","frame_ms":15}', "bad_field", "frame_ms"),
        ('{"type":"session.start","frame_ms":20.5}', "bad_field", "frame_ms"),
        ('{"type":"session.start","bitrate":1000}', "bad_field", "bitrate"),
        ('{"type":"session.start","captions":1}', "bad_field", "captions"),
        ('{"type":"session.start","seed":-1}', "bad_field", "seed"),
        ('{"type":"session.start","seed":4294967296}', "bad_field", "seed"),
        ('{"type":"turn.cancel","turn":true}', "bad_field", "turn"),
        ('{"type":"turn.cancel","turn":0}', "bad_field", "turn"),
        ('{"type":"turn.cancel","played_ms":-1}', "bad_field", "played_ms"),
        ('{"type":"playback"}', "bad_field", "turn"),
        (json.dumps({"type": "text.flush", "id": "x" * 65}), "bad_field", "id"),
    ],
)
def test_a_bad_message_gets_a_code_and_names_the_field(
    raw: str, code: str, field: str | None
) -> None:
    error = refused(raw)
    assert (error.code, error.field, error.fatal) == (code, field, False)
    assert error.hint


def test_an_unknown_type_is_answered_with_the_known_ones() -> None:
    assert refused('{"type":"speak"}').available == sorted(protocol.CLIENT_MESSAGES)


def test_what_the_client_sent_is_not_echoed_at_length() -> None:
    assert len(refused(json.dumps({"type": "x" * 50_000})).encode()) < 1000
    assert len(refused(json.dumps({"type": "text.append", "text": ["x" * 50_000]})).encode()) < 1000


def test_unknown_fields_are_kept_for_session_start_alone() -> None:
    start = parse('{"type":"session.start","voise":"ann","emotion":1}')
    assert isinstance(start, SessionStart)
    assert protocol.unknown_fields(start) == ["emotion", "voise"]
    assert parse('{"type":"turn.end","why":1}') == protocol.TurnEnd()


def test_whole_numbers_will_do_for_numbers() -> None:
    start = parse('{"type":"session.start","speed":1}')
    assert isinstance(start, SessionStart)
    assert start.speed == 1.0


@given(st.text() | JSON.map(json.dumps))
def test_anything_is_taken_or_refused_with_a_code(raw: str) -> None:
    try:
        parse(raw)
    except ProtocolError as refusal:
        assert refusal.code in ERRORS


@given(
    st.sampled_from(sorted(protocol.CLIENT_MESSAGES)),
    st.dictionaries(
        st.sampled_from(
            sorted({name for m in protocol.CLIENT_MESSAGES.values() for name in m.model_fields})
        ),
        JSON,
    ),
)
def test_any_field_of_any_type_is_taken_or_named(kind: str, values: dict[str, object]) -> None:
    values["type"] = kind
    try:
        message = parse(json.dumps(values))
    except ProtocolError as refusal:
        assert refusal.code in ("bad_field", "bad_json")
        assert refusal.code == "bad_json" or refusal.error.field in values or refusal.error.field
    else:
        assert message.type == kind


def test_fields_without_a_value_are_left_out() -> None:
    assert json.loads(protocol.Pong().encode()) == {"type": "pong"}
    assert json.loads(protocol.Pong(id="").encode()) == {"type": "pong", "id": ""}


def test_the_header_is_24_bytes_little_endian_and_aligned() -> None:
    header = AudioHeader(AudioKind.OPUS, AudioFlag.FIRST, 0x01020304, 5, 480, 0x0A0B0C0D0E0F)
    packed = header.pack()
    assert packed == bytes.fromhex("01010100040302010500 0000e00100000f0e0d0c0b0a0000")


@given(
    st.builds(
        AudioHeader,
        st.sampled_from(list(AudioKind)),
        st.integers(0, 2**16 - 1),
        st.integers(0, 2**32 - 1),
        st.integers(0, 2**32 - 1),
        st.integers(0, 2**32 - 1),
        st.integers(0, 2**64 - 1),
    ),
    st.binary(),
)
def test_audio_messages_come_back_as_they_were(header: AudioHeader, payload: bytes) -> None:
    assert unpack_audio(header.pack() + payload) == (header, payload)


def test_broken_audio_messages_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 24 bytes"):
        unpack_audio(b"\x01" * 23)
    with pytest.raises(ValueError, match="version 2"):
        unpack_audio(b"\x02" * 24)
