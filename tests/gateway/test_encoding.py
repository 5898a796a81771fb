"""Every format, decoded by another's decoder, gives what was spoken: all of it, in its place."""

from __future__ import annotations

import io
import warnings

import av
import numpy as np
import opuslib
import pytest
from fake_engine import lag, sweep, tone
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api import AUDIBLE, SAMPLE_RATE, Pcm
from gateway.encoding import Encoder
from gateway.formats import make_encoder
from gateway.protocol import FORMATS, ProtocolError, SessionStart
from gateway.resampling import RATES, Resampler
from gateway.timeline import Packet, Timeline

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import audioop

LINEAR = {"pcm_s16le": None, "mulaw": audioop.ulaw2lin, "alaw": audioop.alaw2lin}
FILES = ("ogg_opus", "webm_opus")


def turn(pieces: list[Pcm], encoder: Encoder, pause: int = 7680) -> tuple[Timeline, list[Packet]]:
    timeline = Timeline(encoder)
    packets: list[Packet] = []
    for piece in pieces:
        packets += [*timeline.feed(piece), *timeline.end_piece(pause)]
    return timeline, packets + timeline.finish()


def from_file(file: bytes, pre_skip: int) -> Pcm:
    """A whole file at 48 kHz: FFmpeg finds the packets and the length, libopus decodes.

    (FFmpeg's own decoder and libopus differ for tones in Opus' hybrid mode.)
    """
    with av.open(io.BytesIO(file)) as container:
        length = sum(frame.samples for frame in container.decode(audio=0))
    with av.open(io.BytesIO(file)) as container:
        packets = [bytes(packet) for packet in container.demux(audio=0)]
    decoder = opuslib.Decoder(48_000, 1)
    data = b"".join(decoder.decode(packet, 2_880) for packet in packets if packet)
    audio = np.frombuffer(data, "<i2").astype(np.float32)[2 * pre_skip :] / 32767
    return audio[:length]


def decoded(start: SessionStart, packets: list[Packet], pre_skip: int) -> tuple[Pcm, int]:
    """What a listener hears on the turn's clock, and at which rate."""
    payloads = [packet.payload for packet in packets]
    if start.format in FILES:
        return from_file(b"".join(payloads), pre_skip), 48_000
    rate = start.sample_rate or (8_000 if start.format in ("mulaw", "alaw") else SAMPLE_RATE)
    if start.format == "opus":
        decoder = opuslib.Decoder(rate, 1)
        data = b"".join(
            decoder.decode(packet.payload, packet.samples * rate // SAMPLE_RATE)
            for packet in packets
        )
    else:
        expand = LINEAR[start.format]
        data = b"".join(expand(payload, 2) if expand else payload for payload in payloads)
    audio = np.frombuffer(data, "<i2").astype(np.float32) / 32767
    assert audio.size * SAMPLE_RATE == sum(packet.samples for packet in packets) * rate
    return audio[pre_skip * rate // SAMPLE_RATE :], rate


def at_rate(pcm: Pcm, rate: int) -> Pcm:
    """An outside reference for resampling: interpolation of a signal far below either limit."""
    length = pcm.size * rate // SAMPLE_RATE
    at = np.arange(length) * SAMPLE_RATE / rate
    return np.interp(at, np.arange(pcm.size), pcm).astype(np.float32)


STARTS = [
    SessionStart(format=format, sample_rate=rate, frame_ms=frame_ms, bitrate=64_000)
    for format in sorted(FORMATS)
    for rate in (RATES if format in ("opus", "pcm_s16le") else (None,))
    for frame_ms in (10, 20, 40, 60)
]


def name(start: SessionStart) -> str:
    return f"{start.format}-{start.sample_rate or 'own'}-{start.frame_ms}"


@pytest.mark.parametrize("start", STARTS, ids=name)
def test_nothing_is_lost_or_moved(start: SessionStart) -> None:
    for samples in (1, 4801, 30_000):
        encoder = make_encoder(start, 5)
        timeline, packets = turn([sweep(samples)], encoder, pause=0)
        assert timeline.samples == samples
        position = 0
        for packet in packets:
            assert packet.position == position
            assert packet.samples <= encoder.frame_samples == 24 * start.frame_ms
            position += packet.samples
        assert position >= samples + encoder.pre_skip
        audio, rate = decoded(start, packets, encoder.pre_skip)
        wanted = at_rate(sweep(samples), rate)
        assert audio.size >= samples * rate // SAMPLE_RATE
        # FFmpeg drops what is left of a file's only packet, or nothing of it.
        if start.format in FILES and len(packets) > 1:
            assert audio.size == samples * 2
        if samples > 20_000:
            late, match = lag(audio[: wanted.size], wanted)
            assert abs(late) <= rate // 8_000
            assert match > 0.9
            last = slice(wanted.size - rate // 50, wanted.size)
            assert np.corrcoef(audio[last], wanted[last])[0, 1] > 0.7


@pytest.mark.parametrize("start", STARTS, ids=name)
def test_a_turn_is_heard_within_10_ms_of_its_start(start: SessionStart) -> None:
    encoder = make_encoder(start, 5)
    quiet = np.random.default_rng(0).uniform(-0.003, 0.003, 9_000).astype(np.float32)
    _, packets = turn([np.concatenate((quiet, tone(9_000, 300.0)))], encoder)
    audio, rate = decoded(start, packets, encoder.pre_skip)
    audible = np.flatnonzero(np.abs(audio) > 10 * AUDIBLE)
    assert audible[0] <= rate // 100


@pytest.mark.parametrize("format", ["opus", *FILES])
def test_silence_costs_little_with_dtx_and_stays_in_its_place(format: str) -> None:
    at = np.arange(24_000) / SAMPLE_RATE
    voiced = sum(np.sin(2 * np.pi * 120 * k * at) / k for k in range(1, 25))
    spoken = (0.1 * voiced * np.abs(np.sin(2 * np.pi * 2 * at))).astype(np.float32)
    sizes, heard = [], []
    for dtx in (False, True):
        start = SessionStart(format=format, dtx=dtx, bitrate=24_000)
        encoder = make_encoder(start, 5)
        _, packets = turn([spoken, spoken], encoder, pause=48_000)
        sizes.append(sum(len(packet.payload) for packet in packets if packet.pause))
        audio, rate = decoded(start, packets, encoder.pre_skip)
        frames = audio[: audio.size // (rate // 50) * (rate // 50)].reshape(-1, rate // 50)
        heard.append(np.sqrt(np.mean(frames**2, axis=1)))
    assert heard[0].size == heard[1].size
    assert np.corrcoef(*heard)[0, 1] > 0.95
    assert sizes[1] < sizes[0] * (0.3 if format == "opus" else 0.7)


def test_a_lost_packet_is_repaired_from_the_next_with_fec() -> None:
    speech = sweep(48_000) * np.linspace(0.3, 1.0, 48_000, dtype=np.float32)
    errors = {}
    for fec in (False, True):
        start = SessionStart(fec=fec, bitrate=32_000, sample_rate=16_000)
        _, packets = turn([speech], make_encoder(start, 5), pause=0)
        whole, repaired = opuslib.Decoder(16_000, 1), opuslib.Decoder(16_000, 1)
        error = 0.0
        for index, packet in enumerate(packets):
            clean = np.frombuffer(whole.decode(packet.payload, 320), "<i2").astype(float)
            if index % 5 == 4 and index + 1 < len(packets):
                got = repaired.decode(packets[index + 1].payload, 320, decode_fec=True)
                error += float(np.sum((np.frombuffer(got, "<i2") - clean) ** 2))
            else:
                repaired.decode(packet.payload, 320)
        errors[fec] = error
    assert errors[True] < errors[False] / 2


def test_opus_settings_reach_the_encoder() -> None:
    def size(**values: object) -> int:
        _, packets = turn([sweep(96_000)], make_encoder(SessionStart(**values), 5))  # type: ignore[arg-type]
        return sum(len(packet.payload) for packet in packets)

    assert size(bitrate=16_000) < 0.6 * size(bitrate=32_000) < 0.4 * size(bitrate=96_000)


@pytest.mark.parametrize(
    ("values", "code", "field"),
    [
        ({"format": "mp3"}, "unknown_format", "format"),
        ({"format": "mulaw", "sample_rate": 16_000}, "bad_field", "sample_rate"),
        ({"format": "alaw", "sample_rate": 24_000}, "bad_field", "sample_rate"),
    ],
)
def test_what_does_not_go_together_is_named(
    values: dict[str, object], code: str, field: str
) -> None:
    with pytest.raises(ProtocolError) as refusal:
        make_encoder(SessionStart(**values), 5)  # type: ignore[arg-type]
    assert (refusal.value.code, refusal.value.error.field) == (code, field)
    assert refusal.value.error.available


def test_g711_is_the_standards_for_every_sample() -> None:
    from gateway.g711 import a_law, mu_law

    samples = np.arange(-32_768, 32_768).astype(np.int16)
    assert mu_law(samples) == audioop.lin2ulaw(samples.tobytes(), 2)
    assert a_law(samples) == audioop.lin2alaw(samples.tobytes(), 2)


# -- resampling ------------------------------------------------------------------------------------


def gain(rate: int, hertz: float) -> float:
    """What becomes of a sine of amplitude 1, in dB."""
    sine = np.sin(2 * np.pi * hertz * np.arange(24_000) / SAMPLE_RATE).astype(np.float32)
    out = Resampler(rate).feed(sine)[rate // 10 :]
    return float(10 * np.log10(2 * np.mean(out.astype(float) ** 2) + 1e-12))


@pytest.mark.parametrize(("rate", "flat", "gone"), [(8000, 3400, 4200), (12000, 5100, 6300)])
def test_speech_passes_and_aliases_do_not(rate: int, flat: float, gone: float) -> None:
    for hertz in (100, 1000, flat):
        assert abs(gain(rate, hertz)) < 0.1
    for hertz in (gone, 8000, 11_000):
        assert gain(rate, hertz) < -60


@pytest.mark.parametrize("rate", [8_000, 12_000, 16_000, 48_000])
def test_resampling_delays_by_what_it_says(rate: int) -> None:
    resampler = Resampler(rate)
    out = resampler.feed(sweep(24_000))
    late = resampler.delay * rate // SAMPLE_RATE
    wanted = at_rate(sweep(24_000), rate)
    assert late * SAMPLE_RATE == resampler.delay * rate
    assert np.allclose(out[late + 100 : -100], wanted[100 : -late - 100], atol=0.01)


@settings(max_examples=30)
@given(st.lists(st.integers(1, 200), min_size=1, max_size=8), st.sampled_from([8_000, 48_000]))
def test_resampling_does_not_depend_on_chunks(sizes: list[int], rate: int) -> None:
    resampler, whole = Resampler(rate), Resampler(rate)
    audio = sweep(sum(sizes) * 3)
    edges = np.cumsum(sizes)[:-1] * 3
    parts = np.concatenate([resampler.feed(part) for part in np.split(audio, edges)])
    assert np.allclose(parts, whole.feed(audio), atol=1e-6)


def test_a_part_of_an_output_sample_cannot_be_fed() -> None:
    with pytest.raises(ValueError, match="no multiple of 3"):
        Resampler(8_000).feed(tone(4))
