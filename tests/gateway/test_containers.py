from __future__ import annotations

import io
import wave
from collections.abc import Iterable

import av
import numpy as np
import pytest
from fake_engine import lag, sweep
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api import Pcm
from gateway.containers import OggOpusWriter, RawOpusWriter, WavWriter, read_raw_opus
from gateway.encoding import PcmEncoder
from gateway.opus import OpusEncoder
from gateway.timeline import Packet, Timeline


def packets_of(samples: int, encoder: OpusEncoder | PcmEncoder) -> list[Packet]:
    timeline = Timeline(encoder)
    return [*timeline.feed(sweep(samples)), *timeline.end_piece(0), *timeline.finish()]


def decoded(file: io.BytesIO) -> Pcm:
    """What FFmpeg makes of an Ogg Opus file, at 48 kHz."""
    file.seek(0)
    with av.open(file) as container:
        frames = [frame.to_ndarray()[0] for frame in container.decode(audio=0)]
    return np.concatenate([np.zeros(0, np.float32), *frames])


def ogg(samples: int, frame_ms: int = 20, length: int | None = None) -> io.BytesIO:
    encoder = OpusEncoder(frame_ms, 32_000, 5)
    file = io.BytesIO()
    writer = OggOpusWriter(file, encoder.pre_skip)
    for packet in packets_of(samples, encoder):
        writer.write(packet.payload, packet.samples)
    writer.close(length)
    return file


@pytest.mark.parametrize("frame_ms", [10, 20, 60])
@pytest.mark.parametrize("samples", [100, 4800, 24_000, 100_001])
def test_an_ogg_file_decodes_to_exactly_what_was_spoken(samples: int, frame_ms: int) -> None:
    audio = decoded(ogg(samples, frame_ms, samples))
    assert audio.size == samples * 2
    if samples > 4000:
        reference = np.interp(np.arange(samples * 2) / 2, np.arange(samples), sweep(samples))
        late, match = lag(audio, reference)
        assert abs(late) <= 6
        assert match > 0.85


def test_without_a_length_the_padding_is_kept() -> None:
    whole = decoded(ogg(5000))
    assert 5000 * 2 <= whole.size < 5000 * 2 + 2 * 480


def test_an_ogg_file_can_be_decoded_from_its_middle() -> None:
    file = ogg(24_000 * 4, length=24_000 * 4)
    file.seek(0)
    with av.open(file) as container:
        stream = container.streams.audio[0]
        container.seek(int(2.0 / stream.time_base), stream=stream)
        rest = sum(frame.samples for frame in container.decode(audio=0))
    assert 24_000 * 2 <= rest / 2 <= 24_000 * 3


def test_an_ogg_file_of_nothing_has_its_headers_and_its_end() -> None:
    file = io.BytesIO()
    OggOpusWriter(file, 156).close(0)
    pages = file.getvalue().split(b"OggS")[1:]
    assert [page[1] for page in pages] == [2, 0, 4]
    assert b"OpusHead" in pages[0]
    assert b"OpusTags" in pages[1]


def test_ogg_pages_are_flushed_while_the_turn_is_spoken() -> None:
    encoder = OpusEncoder(20, 32_000, 5)
    file = io.BytesIO()
    writer = OggOpusWriter(file, encoder.pre_skip)
    sizes = []
    for packet in packets_of(24_000 * 3, encoder):
        writer.write(packet.payload, packet.samples)
        sizes.append(len(file.getvalue()))
    assert len(set(sizes)) >= 6


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(1, 1400), min_size=1, max_size=300))
def test_pages_hold_packets_of_any_size(sizes: Iterable[int]) -> None:
    packets = [bytes([0x08]) + bytes(size - 1) for size in sizes]
    file = io.BytesIO()
    writer = OggOpusWriter(file, 156)
    for packet in packets:
        writer.write(packet, 240)
    writer.close()
    file.seek(0)
    with av.open(file) as container:
        got = [bytes(packet) for packet in container.demux(audio=0)]
    assert [packet for packet in got if packet] == packets


def test_wav_holds_the_samples_and_their_number() -> None:
    file = io.BytesIO()
    writer = WavWriter(file)
    for packet in packets_of(5001, PcmEncoder(20)):
        writer.write(packet.payload, packet.samples)
    writer.close()
    file.seek(0)
    with wave.open(file) as reader:
        assert reader.getparams()[:4] == (1, 2, 24_000, 5001)
        samples = np.frombuffer(reader.readframes(5001), "<i2")
    assert np.allclose(samples / 32767, sweep(5001), atol=1e-4)


class Pipe(io.BytesIO):
    def seek(self, *_: int) -> int:
        raise io.UnsupportedOperation("seek")


def test_wav_on_a_pipe_has_no_size() -> None:
    pipe = Pipe()
    writer = WavWriter(pipe)
    writer.write(b"\x01\x00" * 480, 480)
    writer.close()
    data = pipe.getvalue()
    assert data[40:44] == b"\xff\xff\xff\xff"
    assert len(data) == 44 + 960


def test_bare_packets_come_back() -> None:
    file = io.BytesIO()
    writer = RawOpusWriter(file)
    packets = packets_of(5000, OpusEncoder(20, 32_000, 5))
    for packet in packets:
        writer.write(packet.payload, packet.samples)
    writer.close()
    file.seek(0)
    assert list(read_raw_opus(file)) == [packet.payload for packet in packets]


@pytest.mark.parametrize("rest", [b"\x05", b"\x05\x00abc"])
def test_a_torn_file_of_bare_packets_is_refused(rest: bytes) -> None:
    with pytest.raises(ValueError, match="ends within a packet"):
        list(read_raw_opus(io.BytesIO(b"\x01\x00a" + rest)))
