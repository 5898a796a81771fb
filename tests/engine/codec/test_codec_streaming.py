"""Streaming decode: any chunking, any company, the same samples."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.codec_look_ahead import decibels, jump_share, stream
from bench.codec_random import random_codes, random_hidden
from engine.codec.config import CodecError
from engine.codec.model import Codec, Frames
from engine.codec.streaming import StreamingDecoder

FEW = settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
SOME = settings(FEW, max_examples=40)

_decoders: dict[tuple[int, int], StreamingDecoder] = {}


def decoder_of(codec: Codec, look_ahead: int = 0) -> StreamingDecoder:
    """One decoder for all tests of a codec, because its first pushes record the networks."""
    return _decoders.setdefault((id(codec), look_ahead), StreamingDecoder(codec, look_ahead))


Plan = list[tuple[int, int, list[int]]]
"""For each stream: its first frame in the source, the round it joins in, its chunk lengths."""


@st.composite
def plans(draw: st.DrawFn, longest: int = 12) -> Plan:
    """Streams that come and go, with chunks of any length, empty ones too."""
    chunks = st.lists(st.integers(0, longest), min_size=1, max_size=6)
    one = st.tuples(st.integers(0, 20), st.integers(0, 4), chunks)
    return draw(st.lists(one, min_size=1, max_size=4))


def run(decoder: StreamingDecoder, source: Frames, plan: Plan) -> list[tuple[Frames, np.ndarray]]:
    """Stream the plan; each stream's frames and its concatenated PCM."""
    streams: list[dict[str, Any]] = []
    for first, joins, chunks in plan:
        cuts = np.cumsum([0, *chunks])
        pieces = [source[first + a : first + b] for a, b in pairwise(cuts)]
        whole = source[first : first + int(cuts[-1])]
        pieces[-1] = whole[int(cuts[-2]) :]
        streams.append(
            {"state": decoder.open(), "wait": joins, "left": pieces, "whole": whole, "pcm": []}
        )
    while any(s["left"] for s in streams):
        ready = [s for s in streams if s["left"] and s["wait"] <= 0]
        batch = [(s["state"], s["left"].pop(0), not s["left"]) for s in ready]
        for s, pcm in zip(ready, decoder.push(batch), strict=True):
            s["pcm"].append(pcm)
        for s in streams:
            s["wait"] -= 1
    return [(s["whole"], np.concatenate(s["pcm"])) for s in streams]


def check_equal_offline(codec: Codec, source: Frames, plan: Plan) -> None:
    for whole, streamed in run(decoder_of(codec), source, plan):
        offline = codec.decode(whole)
        assert len(offline) == 512 * len(whole)
        assert streamed.shape == offline.shape
        np.testing.assert_allclose(streamed, offline, atol=1e-5, rtol=0)


@FEW
@given(plan=plans())
def test_embedded_voice_streams_what_it_decodes_offline(
    embedded_codec: Codec, spoken_codes: np.ndarray, plan: Plan
) -> None:
    check_equal_offline(embedded_codec, spoken_codes, plan)


@SOME
@given(plan=plans(), seed=st.integers(0, 5))
def test_random_causal_codec_streams_what_it_decodes_offline(
    small_causal_codec: Codec, plan: Plan, seed: int
) -> None:
    check_equal_offline(small_causal_codec, random_codes(100, 3, 105, seed), plan)


@SOME
@given(plan=plans(longest=30), path=st.sampled_from(["codes", "hidden"]))
def test_released_codec_with_full_look_ahead_streams_what_it_decodes_offline(
    small_released_codec: Codec, plan: Plan, path: str
) -> None:
    """With as much look-ahead as the networks reach, nothing is lost."""
    source = random_codes(200, 4, 625, 1) if path == "codes" else random_hidden(200, 64, 1)
    # 4 blocks reach 6 mel frames each, 3 of the vocoder 3, their convolutions 6: 39 mel frames.
    for whole, streamed in run(decoder_of(small_released_codec, 20), source, plan):
        offline = small_released_codec.decode(whole)
        assert streamed.shape == offline.shape == (max(0, 512 * len(whole) - 256),)
        np.testing.assert_allclose(streamed, offline, atol=1e-5, rtol=0)


@SOME
@given(plan=plans(longest=30), look_ahead=st.sampled_from([0, 1, 5]))
def test_released_codec_does_not_depend_on_its_company(
    small_released_codec: Codec, plan: Plan, look_ahead: int
) -> None:
    source = random_hidden(200, 64, 2)
    decoder = decoder_of(small_released_codec, look_ahead)
    together = run(decoder, source, plan)
    for (whole, pcm), alone in zip(together, plan, strict=True):
        assert len(pcm) == max(0, 512 * len(whole) - 256)
        np.testing.assert_allclose(pcm, run(decoder, source, [alone])[0][1], atol=1e-5, rtol=0)


def test_more_look_ahead_is_nearer_to_offline(small_released_codec: Codec) -> None:
    frames = random_hidden(120, 64, 3)
    offline = small_released_codec.decode(frames)
    nearness = [
        decibels(offline, stream(small_released_codec, frames, 8, look_ahead)[0])
        for look_ahead in (0, 2, 4, 8, 20)
    ]
    assert nearness == sorted(nearness)
    assert nearness[0] < 30
    assert nearness[-1] > 100


@pytest.mark.parametrize("look_ahead", [2, 4, 8])
@pytest.mark.parametrize("push", [3, 8])
def test_no_jump_where_pushes_meet(small_released_codec: Codec, look_ahead: int, push: int) -> None:
    frames = random_hidden(120, 64, 4)
    streamed, seams = stream(small_released_codec, frames, push, look_ahead)
    offline = small_released_codec.decode(frames)
    assert len(seams) > 10
    assert jump_share(offline, streamed, seams) <= 1.0


def test_a_blind_cut_would_have_been_noticed(small_released_codec: Codec) -> None:
    """The seam measure sees the clicks of decoding chunks on their own."""
    frames = random_hidden(120, 64, 4)
    pieces = [small_released_codec.decode(frames[i : i + 8]) for i in range(0, 120, 8)]
    seams = [int(at) for at in np.cumsum([len(p) for p in pieces])[:-1]]
    offline = small_released_codec.decode(frames)
    assert jump_share(offline, np.concatenate(pieces), seams) > 1.0


def test_recorded_networks_give_what_unrecorded_ones_give(
    small_causal_codec: Codec, small_released_codec: Codec
) -> None:
    """Even and ragged batches, of other sizes than those that were recorded."""
    for codec, look_ahead in ((small_causal_codec, 0), (small_released_codec, 3)):
        size = codec.config.quantizer.codebook_size
        source = random_codes(90, codec.width("codes"), size, 8)
        even: Plan = [(first, 0, [7, 7, 7, 11]) for first in (0, 5, 9)]
        ragged: Plan = [(0, 0, [3, 9, 2]), (4, 1, [8, 1, 7, 5]), (8, 0, [12, 6])]
        for plan in (even[:1], even, ragged, ragged[:2]):
            recorded = run(decoder_of(codec, look_ahead), source, plan)
            plain = run(StreamingDecoder(codec, look_ahead, recorded=False), source, plan)
            for (_, one), (_, other) in zip(recorded, plain, strict=True):
                np.testing.assert_allclose(one, other, atol=1e-6, rtol=0)


def test_only_the_overlap_is_held_back(embedded_codec: Codec, spoken_codes: np.ndarray) -> None:
    decoder = decoder_of(embedded_codec)
    state = decoder.open()
    lengths = [len(decoder.push([(state, spoken_codes[i : i + 1], False)])[0]) for i in range(4)]
    assert lengths == [0, 512, 512, 512]
    assert len(decoder.push([(state, spoken_codes[:0], True)])[0]) == 512


def test_a_dropped_stream_leaves_the_others_alone(
    small_causal_codec: Codec,
) -> None:
    codes = random_codes(30, 3, 105, 9)
    decoder = decoder_of(small_causal_codec)
    kept, dropped = decoder.open(), decoder.open()
    first = decoder.push([(kept, codes[:9], False), (dropped, codes[5:12], False)])[0]
    del dropped
    rest = decoder.push([(kept, codes[9:], True)])[0]
    np.testing.assert_allclose(
        np.concatenate([first, rest]), small_causal_codec.decode(codes), atol=1e-5, rtol=0
    )


def test_a_stream_keeps_no_more_than_its_context(small_causal_codec: Codec) -> None:
    decoder = decoder_of(small_causal_codec)
    states = [decoder.open() for _ in range(6)]
    codes = random_codes(8, 3, 105, 2)
    decoder.push([(state, codes, False) for state in states])
    for state in states:
        assert state.context is not None
        assert state.context.untyped_storage().nbytes() == 4 * state.context.numel()
    decoder.push([(state, codes[:0], True) for state in states])
    assert all(state.context is None for state in states)


@pytest.mark.parametrize(
    ("frames", "says"),
    [
        (np.zeros((2, 3), np.float32), "hidden"),
        (np.zeros((2, 4), np.int16), r"\(2, 4\)"),
        (np.zeros(3, np.int16), r"\(3,\)"),
        (np.full((2, 3), 105, np.int16), "105"),
        (np.full((2, 3), -1, np.int16), "-1"),
    ],
)
def test_bad_frames_are_refused_before_anything_is_decoded(
    small_causal_codec: Codec, frames: np.ndarray, says: str
) -> None:
    decoder = decoder_of(small_causal_codec)
    good, bad = decoder.open(), decoder.open()
    codes = random_codes(8, 3, 105, 2)
    with pytest.raises(CodecError, match=says) as caught:
        decoder.push([(good, codes, False), (bad, frames, False)])
    assert caught.value.code == "bad_frames"
    assert good.context is None
    np.testing.assert_allclose(
        decoder.push([(good, codes, True)])[0], small_causal_codec.decode(codes), atol=1e-5
    )


def test_a_finished_stream_takes_no_more(small_causal_codec: Codec) -> None:
    decoder = decoder_of(small_causal_codec)
    state = decoder.open()
    codes = random_codes(8, 3, 105, 2)
    decoder.push([(state, codes, True)])
    with pytest.raises(CodecError) as caught:
        decoder.push([(state, codes, False)])
    assert caught.value.code == "finished_stream"


def test_a_stream_occurs_once_in_a_batch(small_causal_codec: Codec) -> None:
    decoder = decoder_of(small_causal_codec)
    state = decoder.open()
    codes = random_codes(8, 3, 105, 2)
    with pytest.raises(CodecError):
        decoder.push([(state, codes, False), (state, codes, False)])


def test_a_stream_stays_with_its_kind_of_frames(small_released_codec: Codec) -> None:
    decoder = decoder_of(small_released_codec, 2)
    hidden, codes = decoder.open(), decoder.open()
    decoder.push(
        [(hidden, random_hidden(9, 64, 1), False), (codes, random_codes(9, 4, 625, 1), False)]
    )
    with pytest.raises(CodecError, match="hidden"):
        decoder.push([(hidden, random_codes(9, 4, 625, 1), False)])


def test_nothing_from_nothing(small_causal_codec: Codec, small_released_codec: Codec) -> None:
    for codec in (small_causal_codec, small_released_codec):
        decoder = decoder_of(codec)
        assert decoder.push([]) == []
        empty = np.zeros((0, codec.width("codes")), np.int16)
        assert len(decoder.push([(decoder.open(), empty, True)])[0]) == 0
