"""Streams that some clients want and the wire does not have: MP3, AAC, FLAC, WAV, rich Opus.

The compressed ones come from the system's own libraries, loaded when first asked for, as libopus
is: no wheel has them without GPL parts (docs/decisions/audio-formats.md).
"""

from gateway.codecs.aac import AacEncoder
from gateway.codecs.base import Codec, CodecMissingError
from gateway.codecs.flac import FlacEncoder
from gateway.codecs.mp3 import Mp3Encoder
from gateway.codecs.ogg import OggOpusCodec
from gateway.codecs.resampled import ResampledPcm
from gateway.codecs.wav import Passthrough, WavEncoder
from gateway.codecs.writer import CodecWriter

__all__ = [
    "AacEncoder",
    "Codec",
    "CodecMissingError",
    "CodecWriter",
    "FlacEncoder",
    "Mp3Encoder",
    "OggOpusCodec",
    "Passthrough",
    "ResampledPcm",
    "WavEncoder",
]
