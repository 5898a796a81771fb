"""How speech leaves through HTTP: names of formats, media types, codecs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.api import SAMPLE_RATE
from gateway.client import Format
from gateway.codecs import (
    AacEncoder,
    Codec,
    FlacEncoder,
    Mp3Encoder,
    OggOpusCodec,
    Passthrough,
    ResampledPcm,
    WavEncoder,
)

_AAC_BITRATE = 64_000
_MP3_BITRATE = 64_000
MP3_BITRATES = (32, 64, 96, 128, 192)
OPUS_BITRATES = (32, 64, 96)
RICH_OPUS_BITRATES = (128, 192)
"""More than the wire has."""
_OPUS_COMPLEXITY = 5
PCM_RATES = (8_000, 16_000, 24_000, 48_000)
OTHER_PCM_RATES = (22_050, 32_000, 44_100)
"""Made here from 24 kHz; the wire does not have them."""


@dataclass(frozen=True, slots=True)
class Sound:
    """One format. `wire`, `rate` and `bitrate` are what the session makes, `codec` what becomes of
    it. `bare`: samples without a head, of which those a resampler puts before the first are cut.
    """

    name: str
    media_type: str
    wire: Format
    codec: Callable[[], Codec]
    rate: int = SAMPLE_RATE
    bitrate: int = 32_000

    @property
    def sample_bytes(self) -> int:
        """Bytes of one sample on the wire; 0 for what is not samples."""
        return {"pcm_s16le": 2, "mulaw": 1, "alaw": 1}.get(self.wire, 0)


def pcm(name: str, rate: int = SAMPLE_RATE, media_type: str = "audio/pcm") -> Sound:
    """Little-endian 16-bit samples, mono, bare."""
    return Sound(name, media_type, "pcm_s16le", Passthrough, rate)


def resampled_pcm(name: str, rate: int) -> Sound:
    return Sound(name, "audio/pcm", "pcm_s16le", lambda: ResampledPcm(rate))


def wav(name: str, rate: int = SAMPLE_RATE) -> Sound:
    return Sound(name, "audio/wav", "pcm_s16le", lambda: WavEncoder(rate), rate)


def resampled_wav(name: str, rate: int) -> Sound:
    return Sound(name, "audio/wav", "pcm_s16le", lambda: WavEncoder(rate, ResampledPcm(rate)))


def mp3(name: str, bitrate: int = _MP3_BITRATE, rate: int = SAMPLE_RATE) -> Sound:
    """`rate`: of the stream; the encoder resamples."""
    return Sound(name, "audio/mpeg", "pcm_s16le", lambda: Mp3Encoder(SAMPLE_RATE, bitrate, rate))


def ogg_opus(name: str, bitrate: int = 32_000) -> Sound:
    return Sound(name, "audio/ogg", "ogg_opus", Passthrough, bitrate=bitrate)


def rich_ogg_opus(name: str, bitrate: int) -> Sound:
    return Sound(name, "audio/ogg", "pcm_s16le", lambda: OggOpusCodec(bitrate, _OPUS_COMPLEXITY))


def aac(name: str) -> Sound:
    return Sound(name, "audio/aac", "pcm_s16le", lambda: AacEncoder(SAMPLE_RATE, _AAC_BITRATE))


def flac(name: str) -> Sound:
    return Sound(name, "audio/flac", "pcm_s16le", lambda: FlacEncoder(SAMPLE_RATE))


OPENAI: dict[str, Sound] = {
    "mp3": mp3("mp3"),
    "opus": ogg_opus("opus"),
    "aac": aac("aac"),
    "flac": flac("flac"),
    "wav": wav("wav"),
    "pcm": pcm("pcm"),
}

ELEVENLABS: dict[str, Sound] = {
    sound.name: sound
    for sound in (
        mp3("mp3_22050_32", 32_000, 22_050),
        mp3("mp3_24000_48", 48_000, 24_000),
        *(mp3(f"mp3_44100_{kbit}", kbit * 1000, 44_100) for kbit in MP3_BITRATES),
        *(pcm(f"pcm_{rate}", rate) for rate in PCM_RATES),
        *(resampled_pcm(f"pcm_{rate}", rate) for rate in OTHER_PCM_RATES),
        *(wav(f"wav_{rate}", rate) for rate in PCM_RATES),
        *(resampled_wav(f"wav_{rate}", rate) for rate in OTHER_PCM_RATES),
        *(ogg_opus(f"opus_48000_{kbit}", kbit * 1000) for kbit in OPUS_BITRATES),
        *(rich_ogg_opus(f"opus_48000_{kbit}", kbit * 1000) for kbit in RICH_OPUS_BITRATES),
        Sound("ulaw_8000", "audio/basic", "mulaw", Passthrough, 8_000),
        Sound("alaw_8000", "audio/x-alaw-basic", "alaw", Passthrough, 8_000),
    )
}

NATIVE: dict[str, Sound] = {
    "audio/wav": wav("wav"),
    "audio/ogg": ogg_opus("ogg"),
    "audio/mpeg": mp3("mp3"),
    "audio/flac": flac("flac"),
    "audio/aac": aac("aac"),
    "audio/pcm": pcm("pcm"),
}
"""By media type, the preferred first."""
