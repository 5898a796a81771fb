"""Shapes of a codec. Every family is one set of these numbers run by the same modules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


class CodecError(ValueError):
    """A codec was configured, loaded or called with something it cannot take.

    `code` is stable: `bad_config`, `bad_weights`, `bad_frames`, `bad_audio`, `finished_stream`,
    `stopped`.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class MelConfig:
    """Log-mel analysis: magnitude (power 1) STFT with a periodic Hann window, HTK mel scale without
    norm over 0 Hz to Nyquist, natural log clipped at `floor`.

    `edge` is how the ends are padded by n_fft / 2; `whole_hops` drops the last frame, so that
    n * hop samples give n frames instead of n + 1.
    """

    sample_rate: int = 24_000
    bands: int = 100
    n_fft: int = 1024
    hop: int = 256
    floor: float = 1e-5
    edge: Literal["reflect", "constant"] = "reflect"
    whole_hops: bool = False


@dataclass(frozen=True, slots=True)
class QuantizerConfig:
    """Grouped residual finite scalar quantisation (arXiv 2309.15505).

    A frame of `dim` values is cut in `groups`; each group is projected to len(levels) numbers and
    quantised `residual` times, each time on a grid `finer` times finer. Levels are odd. Code id:
    sum over i of digit_i * prod(levels[:i]). Codes of a frame are ordered g0r0, g0r1, .., g1r0, ..

    `squash` is how values are bounded before rounding. `once`: tanh, then every stage clamps.
    `stage`: tanh onto the digits' range, then every stage applies tanh again (what
    vector-quantize-pytorch did until 1.26, and what the released ChatTTS weights were trained
    with). `soft`: tanh that reaches a little beyond the grid, then every stage clamps (from 1.27).
    `finer` is "level - 1" or "level" (from 1.27). Encoding depends on both, decoding on `finer`.
    """

    dim: int
    groups: int = 2
    residual: int = 2
    levels: tuple[int, ...] = (5, 5, 5, 5)
    squash: Literal["once", "stage", "soft"] = "once"
    finer: Literal["level - 1", "level"] = "level - 1"

    def __post_init__(self) -> None:
        if any(level < 3 or level % 2 == 0 for level in self.levels):
            raise CodecError("bad_config", f"FSQ levels must be odd and over 2, not {self.levels}")
        if self.dim % self.groups:
            raise CodecError("bad_config", f"{self.groups} groups do not divide dim {self.dim}")

    @property
    def codebooks(self) -> int:
        return self.groups * self.residual

    @property
    def codebook_size(self) -> int:
        size = 1
        for level in self.levels:
            size *= level
        return size


@dataclass(frozen=True, slots=True)
class StackConfig:
    """A ConvNeXt stack over time: entry convolutions, blocks, exit projection.

    `entry` lists the widths of the kernel-3 entry convolutions, with GELU between them; the last is
    the width of the blocks. `exit_norm` puts a LayerNorm before the exit projection, `exit_bias`
    gives that a bias. `causal` pads on the left only.
    """

    inputs: int
    outputs: int
    entry: tuple[int, ...]
    intermediate: int
    layers: int
    kernel: int = 7
    dilation: int = 1
    causal: bool = False
    exit_norm: bool = False
    exit_bias: bool = False

    @property
    def hidden(self) -> int:
        return self.entry[-1] if self.entry else self.inputs


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """Frames to log-mel, two mel frames a frame.

    `double` says where time doubles: `input` cuts each input vector in two half as wide, `output`
    cuts each output vector in two. `smooth` is a last kernel-3 convolution to the mel bands, scaled
    per band by the checkpoint's `coef`.
    """

    stack: StackConfig
    double: Literal["input", "output"]
    smooth: bool
    bands: int = 100


@dataclass(frozen=True, slots=True)
class VocoderConfig:
    """Vocos (arXiv 2306.00814): log-mel to waveform through an inverse STFT.

    `silent_tail` appends one silent STFT frame at the end, so that n mel frames give n * hop
    samples; without it they give (n - 1) * hop.
    """

    dim: int
    intermediate: int
    layers: int
    bands: int = 100
    kernel: int = 7
    n_fft: int = 1024
    hop: int = 256
    causal: bool = False
    silent_tail: bool = False

    @property
    def hidden(self) -> int:
        return self.dim


@dataclass(frozen=True, slots=True)
class EncoderConfig:
    """Log-mel to the quantiser's input, one frame for two mel frames.

    `down` is the width of the two convolutions (kernel 3, then kernel 4 with stride 2).
    """

    down: int
    stack: StackConfig


@dataclass(frozen=True, slots=True)
class CodecConfig:
    """A whole codec. `codes` decodes codec codes, `hidden` decodes the language model's hidden
    states; a family has one or both. `affine` is (shift, scale): the networks work on
    (log-mel + shift) / scale.
    """

    mel: MelConfig
    quantizer: QuantizerConfig
    codes: DecoderConfig | None
    hidden: DecoderConfig | None
    vocoder: VocoderConfig
    encoder: EncoderConfig | None
    affine: tuple[float, float] = (0.0, 1.0)

    @property
    def causal(self) -> bool:
        paths = [d for d in (self.codes, self.hidden) if d is not None]
        return self.vocoder.causal and all(d.stack.causal for d in paths)

    @property
    def samples_per_frame(self) -> int:
        return 2 * self.vocoder.hop


def mini_config(settings: Mapping[str, Any]) -> CodecConfig:
    """Config of the embedded voice's codec from its config.json (`mel` and `codec` objects).

    Raises `CodecError("bad_config")` naming what is missing.
    """
    try:
        mel, codec = settings["mel"], settings["codec"]
        fsq = codec["fsq"]
        latent, causal = int(codec["lat"]), bool(codec["causal"])
        bands = int(mel["n_mels"])
        quantizer = QuantizerConfig(
            dim=latent,
            groups=int(fsq["groups"]),
            residual=int(fsq["residual"]),
            levels=tuple(int(level) for level in fsq["levels"]),
        )
        dec, voc, enc = (int(codec[key]) for key in ("dec_d", "voc_d", "enc_d"))
        dec_layers, voc_layers, enc_layers = (
            int(codec[key]) for key in ("dec_n", "voc_n", "enc_n")
        )
        n_fft, hop = int(mel["n_fft"]), int(mel["hop"])
        floor = float(mel["log_clip"])
        rate = int(settings["sample_rate"])
    except (KeyError, TypeError) as error:
        raise CodecError("bad_config", f"codec configuration lacks {error}") from error
    return CodecConfig(
        mel=MelConfig(rate, bands, n_fft, hop, floor, edge="constant", whole_hops=True),
        quantizer=quantizer,
        codes=DecoderConfig(
            StackConfig(
                inputs=latent,
                outputs=2 * bands,
                entry=(dec,),
                intermediate=3 * dec,
                layers=dec_layers,
                causal=causal,
                exit_norm=True,
                exit_bias=True,
            ),
            double="output",
            smooth=False,
            bands=bands,
        ),
        hidden=None,
        vocoder=VocoderConfig(
            voc, 3 * voc, voc_layers, bands, n_fft=n_fft, hop=hop, causal=causal, silent_tail=True
        ),
        encoder=EncoderConfig(
            down=enc,
            stack=StackConfig(
                inputs=enc,
                outputs=latent,
                entry=(),
                intermediate=3 * enc,
                layers=enc_layers,
                exit_bias=True,
            ),
        ),
        affine=(4.0, 4.0),
    )


def released_config(
    *,
    quantizer: Literal["trained", "current"] = "trained",
    gpt_hidden: int = 768,
    quantizer_dim: int = 1024,
    dvae_hidden: int = 256,
    decoder_hidden: int = 512,
    bottleneck: int = 128,
    layers: int = 12,
    vocoder_dim: int = 512,
    vocoder_intermediate: int = 1536,
    vocoder_layers: int = 8,
) -> CodecConfig:
    """Config of the released ChatTTS codec (the defaults), or one of its shape with other sizes.

    `quantizer`: `trained` is the arithmetic the weights were trained with, `current` that of
    vector-quantize-pytorch 1.27 and later (docs/decisions/codec-quantizer.md). The DVAE works on
    quantizer_dim / 2 channels, Decoder on gpt_hidden / 2: the two halves of a vector are
    consecutive mel frames.
    """
    squash: Literal["stage", "soft"] = "stage" if quantizer == "trained" else "soft"
    finer: Literal["level - 1", "level"] = "level - 1" if quantizer == "trained" else "level"

    def stack(inputs: int, outputs: int, hidden: int) -> StackConfig:
        return StackConfig(
            inputs, outputs, (bottleneck, hidden), 4 * hidden, layers, kernel=7, dilation=2
        )

    wide, narrow = quantizer_dim // 2, gpt_hidden // 2
    return CodecConfig(
        mel=MelConfig(),
        quantizer=QuantizerConfig(quantizer_dim, squash=squash, finer=finer),
        codes=DecoderConfig(stack(wide, wide, dvae_hidden), double="input", smooth=True),
        hidden=DecoderConfig(stack(narrow, narrow, decoder_hidden), double="input", smooth=True),
        vocoder=VocoderConfig(vocoder_dim, vocoder_intermediate, vocoder_layers),
        encoder=EncoderConfig(down=wide, stack=stack(wide, quantizer_dim, dvae_hidden)),
    )
