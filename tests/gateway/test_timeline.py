from __future__ import annotations

import numpy as np
import opuslib
import pytest
from fake_engine import lag, sweep, tone
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api import Pcm
from gateway.encoding import Encoder, PcmEncoder
from gateway.opus import OpusEncoder
from gateway.seams import FADE
from gateway.timeline import Packet, Timeline

PAUSE = 3000


def silence(samples: int) -> Pcm:
    return np.zeros(samples, np.float32)


def lay(
    encoder: Encoder, pieces: list[list[Pcm]], pause: int = PAUSE
) -> tuple[Timeline, list[Packet]]:
    """All packets of a turn of pieces, each a list of chunks."""
    timeline = Timeline(encoder)
    packets: list[Packet] = []
    for chunks in pieces:
        for chunk in chunks:
            packets += timeline.feed(chunk)
        packets += timeline.end_piece(pause)
    return timeline, packets + timeline.finish()


def samples_of(packets: list[Packet]) -> Pcm:
    """PCM packets as float32."""
    data = b"".join(packet.payload for packet in packets)
    return np.frombuffer(data, "<i2").astype(np.float32) / 32767


def decoded(packets: list[Packet], pre_skip: int) -> Pcm:
    """Opus packets, decoded by libopus, on the turn's clock."""
    decoder = opuslib.Decoder(24_000, 1)
    parts = [decoder.decode(packet.payload, packet.samples) for packet in packets]
    return np.frombuffer(b"".join(parts), "<i2").astype(np.float32)[pre_skip:] / 32767


def assert_contiguous(packets: list[Packet]) -> None:
    position = 0
    for packet in packets:
        assert packet.position == position
        position += packet.samples


def test_pieces_follow_each_other_with_the_pause_between() -> None:
    timeline, packets = lay(PcmEncoder(20), [[tone(5000)], [tone(2345)]])
    audio = samples_of(packets)
    assert timeline.samples == audio.size == 5000 + PAUSE + 2345 + PAUSE
    assert np.allclose(audio[:5000], tone(5000), atol=1e-4)
    assert not audio[5000 + FADE : 5000 + PAUSE].any()
    assert np.allclose(audio[5000 + PAUSE :][:2345], tone(2345), atol=1e-4)


def test_the_pieces_own_silence_counts_towards_the_pause() -> None:
    for own in (0, 1000, PAUSE, 20_000):
        timeline, _ = lay(PcmEncoder(20), [[tone(5000), silence(own)]])
        # Silence longer than what is held back has been passed on before the end was known.
        assert timeline.samples == 5000 + max(PAUSE, own - 5760)


def test_a_pause_below_the_held_silence_cuts_it() -> None:
    timeline, _ = lay(PcmEncoder(20), [[tone(5000), silence(4000)]], pause=100)
    assert timeline.samples == 5100


def test_a_silent_piece_leaves_no_trace() -> None:
    timeline, packets = lay(PcmEncoder(20), [[silence(9000)], [tone(480)]], pause=0)
    assert timeline.samples == 480
    assert len(packets) == 1


def test_a_turn_without_audio_has_no_packets() -> None:
    for encoder in (PcmEncoder(20), OpusEncoder(20, 32_000, 5)):
        assert lay(encoder, [])[1] == []
        assert lay(encoder, [[silence(5000)]])[1] == []


def test_packets_of_nothing_but_pause_say_so() -> None:
    ended = np.concatenate((tone(480 * 3), silence(1)))
    _, packets = lay(PcmEncoder(20), [[ended], [ended]], pause=480 * 2 + 1)
    spoken = [False] * 4 + [True]
    assert [packet.pause for packet in packets] == spoken + spoken + [True]


@pytest.mark.parametrize("frame_ms", [10, 20, 40, 60])
def test_opus_loses_no_sample_at_the_end(frame_ms: int) -> None:
    for samples in (1, 479, 480, 24 * frame_ms - 156, 24 * frame_ms - 155, 5000):
        encoder = OpusEncoder(frame_ms, 96_000, 5)
        timeline, packets = lay(encoder, [[tone(samples)]], pause=0)
        audio = decoded(packets, encoder.pre_skip)
        assert timeline.samples == samples
        assert audio.size >= samples
        assert all(packet.samples == 24 * frame_ms for packet in packets)
        assert audio.size - samples < 24 * frame_ms
        assert_contiguous(packets)


def test_opus_puts_every_sample_where_the_clock_says() -> None:
    encoder = OpusEncoder(20, 96_000, 10)
    pieces = [sweep(6000), sweep(7000)[::-1].copy()]
    _, packets = lay(encoder, [[piece] for piece in pieces])
    audio = decoded(packets, encoder.pre_skip)
    clean = np.concatenate((pieces[0], silence(PAUSE), pieces[1], silence(PAUSE)))
    late, match = lag(audio[: clean.size], clean)
    assert abs(late) <= 2
    assert match > 0.95


CHUNKS = st.lists(st.integers(1, 4000), min_size=1, max_size=6)
PIECE = st.tuples(st.integers(0, 2000), st.integers(0, 6000), st.integers(0, 8000), CHUNKS, CHUNKS)


def chunked(audio: Pcm, sizes: list[int]) -> list[Pcm]:
    edges = np.cumsum(sizes * (audio.size // sum(sizes) + 1))
    return [part for part in np.split(audio, edges[edges < audio.size]) if part.size]


@settings(deadline=None, max_examples=60)
@given(st.lists(PIECE, max_size=4), st.sampled_from([10, 20, 40, 60]), st.booleans())
def test_packets_do_not_depend_on_chunks(
    drawn: list[tuple[int, int, int, list[int], list[int]]], frame_ms: int, opus: bool
) -> None:
    def make() -> Encoder:
        return OpusEncoder(frame_ms, 32_000, 0) if opus else PcmEncoder(frame_ms)

    one, other = [], []
    for before, loud, after, left, right in drawn:
        audio = np.concatenate((silence(before), tone(loud), silence(after)))
        one.append(chunked(audio, left))
        other.append(chunked(audio, right))
    ours, packets = lay(make(), one)
    theirs, same = lay(make(), other)
    assert packets == same
    assert ours.samples == theirs.samples
    assert_contiguous(packets)
    if packets:
        total = packets[-1].position + packets[-1].samples
        assert total >= ours.samples + make().pre_skip
