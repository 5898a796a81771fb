"""From the wishes of `session.start` to an encoder of one turn."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import BinaryIO, Protocol

from engine.api import SAMPLE_RATE, Pcm
from gateway.containers import OggOpusWriter, Writer
from gateway.encoding import Encoder, G711Encoder, PcmEncoder
from gateway.opus import OpusEncoder
from gateway.protocol import FORMATS, AudioKind, ProtocolError, SessionStart
from gateway.resampling import RATES
from gateway.webm import WebmOpusWriter


class _StreamWriter(Writer, Protocol):
    def flush(self) -> None: ...


_WRITERS: dict[AudioKind, Callable[[BinaryIO, int], _StreamWriter]] = {
    AudioKind.OGG_OPUS: OggOpusWriter,
    AudioKind.WEBM_OPUS: WebmOpusWriter,
}
_TELEPHONY = (AudioKind.MULAW, AudioKind.ALAW)


class StreamEncoder:
    """Opus in a container: the payloads of a turn, one after the other, are one file."""

    def __init__(self, kind: AudioKind, opus: OpusEncoder) -> None:
        self.kind = kind
        self.frame_samples, self.grain, self.pre_skip = (
            opus.frame_samples,
            opus.grain,
            opus.pre_skip,
        )
        self._opus = opus
        self._out = io.BytesIO()
        self._writer = _WRITERS[kind](self._out, opus.pre_skip)

    def encode(self, pcm: Pcm, end: int | None = None) -> bytes:
        self._writer.write(self._opus.encode(pcm), pcm.size)
        if end is None:
            self._writer.flush()
        else:
            self._writer.close(end)
        payload = self._out.getvalue()
        self._out.seek(0)
        self._out.truncate()
        return payload


def is_opus(format: str) -> bool:
    """Whether bitrate, FEC and DTX mean something for a wire format."""
    return FORMATS[format] in (AudioKind.OPUS, *_WRITERS)


def sample_rate(start: SessionStart) -> int:
    """The rate in force. Raises `ProtocolError` for a format or a rate that cannot be."""
    kind = FORMATS.get(start.format)
    if kind is None:
        raise ProtocolError("unknown_format", field="format", available=sorted(FORMATS))
    rates = (G711Encoder.RATE,) if kind in _TELEPHONY else RATES
    rate = start.sample_rate
    if rate is None:
        return rates[0] if kind in _TELEPHONY else SAMPLE_RATE
    if rate not in rates:
        raise ProtocolError(
            "bad_field",
            f"`{start.format}` has no sample rate {rate}.",
            field="sample_rate",
            available=[str(each) for each in rates],
        )
    return rate


def opus_complexity(start: SessionStart, most: int) -> int:
    """What a session gets of the server's `most`."""
    return most if start.complexity is None else min(start.complexity, most)


def make_encoder(start: SessionStart, complexity: int) -> Encoder:
    """A new encoder for one turn. Raises `ProtocolError` as `sample_rate` does."""
    rate, kind = sample_rate(start), FORMATS[start.format]
    if kind is AudioKind.PCM_S16LE:
        return PcmEncoder(start.frame_ms, rate)
    if kind in _TELEPHONY:
        return G711Encoder(kind, start.frame_ms)
    opus = OpusEncoder(
        start.frame_ms,
        start.bitrate,
        opus_complexity(start, complexity),
        rate,
        fec=start.fec,
        dtx=start.dtx,
    )
    return opus if kind is AudioKind.OPUS else StreamEncoder(kind, opus)
