"""Encoders, judged by an independent decoder."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
import pytest
from clients_support import decoded
from hypothesis import given
from hypothesis import strategies as st

from gateway.codecs import (
    AacEncoder,
    Codec,
    CodecMissingError,
    FlacEncoder,
    Mp3Encoder,
    OggOpusCodec,
    WavEncoder,
    base,
)
from gateway.codecs.resampled import ResampledPcm

RATE = 24_000


def tone(seconds: float, hertz: float = 440.0, rate: int = RATE) -> np.ndarray:
    time = np.arange(int(seconds * rate)) / rate
    return (8_000 * np.sin(2 * np.pi * hertz * time)).astype("<i2")


def encoded(codec: Codec, data: bytes, size: int = 960) -> bytes:
    parts = [codec.feed(data[at : at + size]) for at in range(0, len(data), size)]
    return b"".join(parts) + codec.finish()


def pitch(samples: np.ndarray, rate: int) -> float:
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(samples.size)))
    return float(np.argmax(spectrum) * rate / samples.size)


@pytest.mark.parametrize(
    ("make", "container", "rate"),
    [
        (lambda: Mp3Encoder(RATE, 64_000), "mp3", 24_000),
        (lambda: Mp3Encoder(RATE, 128_000, 44_100), "mp3", 44_100),
        (lambda: Mp3Encoder(RATE, 32_000, 22_050), "mp3", 22_050),
        (lambda: AacEncoder(RATE, 64_000), "aac", 24_000),
        (lambda: FlacEncoder(RATE), "flac", 24_000),
        (lambda: WavEncoder(RATE), "wav", 24_000),
        (lambda: WavEncoder(44_100, ResampledPcm(44_100)), "wav", 44_100),
        (lambda: OggOpusCodec(192_000, 5), "ogg", 48_000),
    ],
)
@pytest.mark.parametrize("size", [96, 960, 100_000])
def test_what_goes_in_comes_out(
    make: Callable[[], Codec], container: str, rate: int, size: int
) -> None:
    data = tone(1.5)
    samples, heard = decoded(encoded(make(), data.tobytes(), size), container)
    assert heard == rate
    assert 1.5 <= samples.size / rate + 0.001 < 1.65
    assert pitch(samples[: int(1.4 * rate)], rate) == pytest.approx(440, abs=2)
    loudest = np.abs(samples[rate // 10 :]).max() * 32_768
    assert loudest == pytest.approx(8_000, rel=0.05)


def test_opus_ends_with_its_last_sample_and_uses_its_bits() -> None:
    data = np.random.default_rng(3).integers(-4_000, 4_000, 12_345).astype("<i2")
    made = {rate: encoded(OggOpusCodec(rate, 5), data.tobytes(), 998) for rate in (96_000, 192_000)}
    for stream in made.values():
        assert decoded(stream, "ogg")[0].size == 2 * data.size
    assert len(made[192_000]) > 1.7 * len(made[96_000])


@pytest.mark.parametrize("make", [lambda: FlacEncoder(RATE), lambda: WavEncoder(RATE)])
def test_lossless_is_lossless(make: Callable[[], Codec]) -> None:
    data = np.random.default_rng(1).integers(-32_768, 32_767, 5_000).astype("<i2")
    samples, _ = decoded(encoded(make(), data.tobytes()))
    assert np.array_equal(np.rint(samples * 32_768).astype("<i2"), data)


@pytest.mark.parametrize(
    ("make", "after"),
    [(lambda: FlacEncoder(RATE), 1), (lambda: Mp3Encoder(RATE, 64_000), 2)],
)
def test_sound_comes_out_with_the_first_packets(make: Callable[[], Codec], after: int) -> None:
    codec = make()
    data = tone(0.1).tobytes()
    assert any(codec.feed(data[at : at + 960]) for at in range(0, 960 * after, 960))
    codec.close()
    codec.close()


def test_what_cannot_be_made_is_refused() -> None:
    with pytest.raises(ValueError, match="AAC has no"):
        AacEncoder(12_345, 64_000)


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    base.library.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", missing)
    try:
        with pytest.raises(CodecMissingError, match="apt-get install libmp3lame0"):
            Mp3Encoder(RATE, 64_000)
        assert base.missing_libraries() == ["libmp3lame0", "libvo-aacenc0", "flac"]
    finally:
        monkeypatch.undo()
        base.library.cache_clear()
    assert base.missing_libraries() == []


@pytest.mark.parametrize("rate", [22_050, 32_000, 44_100])
def test_other_rates_have_the_same_sound_at_the_same_time(rate: int) -> None:
    data = tone(0.5)
    out = np.frombuffer(encoded(ResampledPcm(rate), data.tobytes()), "<i2")
    assert out.size == -(-data.size * rate // RATE)
    wanted = tone(0.5, rate=rate)[: out.size].astype(float)
    middle = slice(rate // 10, 4 * rate // 10)
    error = out[middle] - wanted[middle]
    assert np.sqrt(np.mean(error**2)) < 8_000 / 1_000


@given(st.lists(st.integers(0, 700), max_size=12))
def test_resampling_does_not_depend_on_the_parts(sizes: list[int]) -> None:
    data = np.random.default_rng(2).integers(-9_000, 9_000, 3_000).astype("<i2").tobytes()
    whole = encoded(ResampledPcm(44_100), data, len(data))
    codec, at, out = ResampledPcm(44_100), 0, b""
    for size in sizes:
        out += codec.feed(data[at : at + 2 * size])
        at = min(len(data), at + 2 * size)
    out += codec.feed(data[at:]) + codec.finish()
    assert out == whole
