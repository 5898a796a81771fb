from __future__ import annotations

import subprocess
import sys

import numpy as np
import opuslib
import pytest
from fake_engine import tone

from gateway.encoding import PcmEncoder
from gateway.opus import OpusEncoder, require_opus
from gateway.protocol import AudioKind


def test_pcm_is_clipped_and_little_endian() -> None:
    encoder = PcmEncoder(10)
    assert (encoder.kind, encoder.frame_samples, encoder.pre_skip) == (AudioKind.PCM_S16LE, 240, 0)
    pcm = np.array([0.0, 1.0, -1.0, 3.0, -3.0, 0.5], np.float32)
    values = np.frombuffer(encoder.encode(pcm), "<i2")
    assert values.tolist() == [0, 32767, -32767, 32767, -32767, 16384]


@pytest.mark.parametrize("frame_ms", [10, 20, 40, 60])
@pytest.mark.parametrize("bitrate", [16_000, 32_000, 96_000])
def test_opus_keeps_to_frame_and_bitrate(frame_ms: int, bitrate: int) -> None:
    encoder = OpusEncoder(frame_ms, bitrate, 5)
    frame = encoder.frame_samples
    speech = tone(24_000 * 2) * np.random.default_rng(0).uniform(0.2, 1.0, 48_000)
    packets = [
        encoder.encode(speech[at : at + frame].astype(np.float32))
        for at in range(0, 48_000 - frame + 1, frame)
    ]
    decoder = opuslib.Decoder(24_000, 1)
    assert all(len(decoder.decode(packet, frame)) == frame * 2 for packet in packets)
    assert sum(map(len, packets)) * 8 / 2 == pytest.approx(bitrate, rel=0.15)


def test_opus_takes_whole_frames_only() -> None:
    with pytest.raises(ValueError, match="480 samples, not 479"):
        OpusEncoder(20, 32_000, 5).encode(tone(479))


def test_opus_takes_any_layout_of_samples() -> None:
    wide = np.repeat(tone(480).astype(np.float64), 2)[::2]
    assert OpusEncoder(20, 32_000, 5).encode(wide) == OpusEncoder(20, 32_000, 5).encode(tone(480))


def test_a_missing_library_is_one_clear_line() -> None:
    require_opus()
    script = (
        "import ctypes.util; ctypes.util.find_library = lambda name: None\n"
        "from gateway.opus import OpusMissingError, require_opus\n"
        "try: require_opus()\n"
        "except OpusMissingError as missing: print(missing)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("libopus is missing. Debian, Ubuntu: apt-get install libopus0;")
