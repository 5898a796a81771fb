from __future__ import annotations

import io

import av
import numpy as np
import pytest
from fake_engine import sweep

from engine.api import SAMPLE_RATE
from gateway.opus import OpusEncoder
from gateway.timeline import Packet, Timeline
from gateway.webm import WebmOpusWriter


def packets_of(samples: int, encoder: OpusEncoder) -> list[Packet]:
    timeline = Timeline(encoder)
    return [*timeline.feed(sweep(samples)), *timeline.end_piece(0), *timeline.finish()]


def webm(samples: int, length: int | None = None, frame_ms: int = 20) -> bytes:
    encoder = OpusEncoder(frame_ms, 32_000, 5)
    file = io.BytesIO()
    writer = WebmOpusWriter(file, encoder.pre_skip)
    for packet in packets_of(samples, encoder):
        writer.write(packet.payload, packet.samples)
    writer.close(length)
    return file.getvalue()


def length_of(file: bytes) -> int:
    """Samples at 48 kHz that FFmpeg gives."""
    with av.open(io.BytesIO(file)) as container:
        return sum(frame.samples for frame in container.decode(audio=0))


@pytest.mark.parametrize("frame_ms", [10, 20, 60])
@pytest.mark.parametrize("samples", [4_801, 24_000, 300_001])
def test_a_file_has_exactly_what_was_spoken(samples: int, frame_ms: int) -> None:
    assert length_of(webm(samples, samples, frame_ms)) == samples * 2


def test_without_a_length_the_padding_is_kept() -> None:
    assert 5_000 * 2 <= length_of(webm(5_000)) < (5_000 + 480) * 2


def test_times_go_on_from_cluster_to_cluster() -> None:
    """Longer than a cluster, and than the 16 bits of a block's time would hold."""
    with av.open(io.BytesIO(webm(SAMPLE_RATE * 40, SAMPLE_RATE * 40, 60))) as container:
        times = [packet.pts for packet in container.demux(audio=0) if packet.pts is not None]
    steps = np.diff(times)
    assert set(steps.tolist()) == {60}
    assert 39_000 < times[-1] < 40_100


def test_what_broke_off_can_be_played() -> None:
    whole = webm(SAMPLE_RATE * 3, SAMPLE_RATE * 3)
    half = length_of(whole[: len(whole) // 2])
    assert 0.3 < half / (SAMPLE_RATE * 3 * 2) < 0.7


def test_a_file_of_nothing_has_its_head() -> None:
    file = io.BytesIO()
    WebmOpusWriter(file, 156).close(0)
    assert file.getvalue().startswith(b"\x1a\x45\xdf\xa3")
    assert b"OpusHead" in file.getvalue()
