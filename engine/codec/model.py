"""The codec: frames (codes or hidden states) to PCM, PCM to codes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from engine.api import Pcm
from engine.codec.blocks import ConvNeXtBlock, kept_width
from engine.codec.config import CodecConfig, CodecError, mini_config, released_config
from engine.codec.dvae import Encoder, MelDecoder
from engine.codec.mel import LogMel
from engine.codec.names import Part, fill
from engine.codec.quantizer import Quantizer
from engine.codec.rows import Context, Layout, Rows
from engine.codec.vocos import OverlapAdd, Vocoder

Frames = npt.NDArray[Any]
"""Codes (n, codebooks) of an integer type, or hidden states (n, width) of a float type."""

Path = Literal["codes", "hidden"]


class Codec(nn.Module):
    """One codec in evaluation form. All methods run without gradients.

    `encode` needs the encoder's weights; `decode` offline equals the streaming decoder (see
    `streaming`) given everything at once.
    """

    def __init__(self, config: CodecConfig, *, encodes: bool = True) -> None:
        super().__init__()
        self.config = config
        encodes = encodes and config.encoder is not None
        self.quantizer = Quantizer(config.quantizer, encodes=encodes)
        self.codes = MelDecoder(config.codes) if config.codes else None
        self.hidden = MelDecoder(config.hidden) if config.hidden else None
        self.vocoder = Vocoder(config.vocoder)
        self.encoder: Encoder | None = None
        self.log_mel: LogMel | None = None
        if encodes and config.encoder is not None:
            divides = config.codes is not None and config.codes.smooth
            self.encoder = Encoder(config.encoder, config.mel.bands, divides=divides)
            self.log_mel = LogMel(config.mel)
        self.overlap_add = OverlapAdd(config.vocoder)
        self.requires_grad_(False)
        self.eval()

    @classmethod
    def from_mini(
        cls,
        config: Mapping[str, Any],
        decoder: Mapping[str, Tensor],
        encoder: Mapping[str, Tensor] | None = None,
    ) -> Codec:
        """The embedded voice's codec: its config.json and the tensors of its codec files.

        Raises `CodecError` (`bad_config`, `bad_weights`).
        """
        settings = mini_config(config)
        codec = cls(settings, encodes=encoder is not None)
        parts: list[tuple[Part, Mapping[str, Tensor]]] = []
        if encoder is not None:
            parts.append(("mini_encoder", encoder))
        parts.append(("mini_decoder", decoder))
        fill(codec, settings, parts)
        return codec.folded()

    @classmethod
    def released(
        cls,
        dvae: Mapping[str, Tensor],
        decoder: Mapping[str, Tensor],
        vocos: Mapping[str, Tensor],
        config: CodecConfig | None = None,
    ) -> Codec:
        """A ChatTTS codec from the tensors of DVAE, Decoder and Vocos, by their release names.

        `config` defaults to the released sizes. Raises `CodecError("bad_weights")`.
        """
        settings = config or released_config()
        codec = cls(settings)
        fill(codec, settings, [("dvae", dvae), ("decoder", decoder), ("vocos", vocos)])
        return codec.folded()

    def folded(self) -> Codec:
        """Merge what can be merged once the weights are there."""
        for module in self.modules():
            if isinstance(module, ConvNeXtBlock):
                module.fold()
        self.quantizer.tabulate()
        return self

    def with_blocks_in(self, dtype: torch.dtype) -> Codec:
        """Compute the ConvNeXt blocks' matrix products in `dtype`; the rest stays float32.

        They are nine tenths of the arithmetic. In bfloat16 streamed audio no longer equals offline
        audio to 1e-5, only to the rounding of bfloat16 (docs/decisions/codec-precision.md).
        """
        for part in (self.codes, self.hidden, self.vocoder):
            for module in part.modules() if part is not None else ():
                if isinstance(module, ConvNeXtBlock):
                    module.widen.to(dtype)
                    module.narrow.to(dtype)
        return self

    @property
    def device(self) -> torch.device:
        return self.vocoder.window.device

    @property
    def default_path(self) -> Path:
        return "hidden" if self.hidden is not None else "codes"

    def path_of(self, frames: Frames) -> Path:
        """Which path decodes frames of this type and shape. Raises `CodecError("bad_frames")`."""
        path: Path = "codes" if np.issubdtype(frames.dtype, np.integer) else "hidden"
        decoder = self.codes if path == "codes" else self.hidden
        if decoder is None:
            raise CodecError("bad_frames", f"this codec cannot decode {path} ({frames.dtype})")
        if frames.ndim != 2 or frames.shape[1] != self.width(path):
            expected = f"(n, {self.width(path)})"
            raise CodecError("bad_frames", f"{path} of shape {frames.shape}, expected {expected}")
        return path

    def check_range(self, codes: Frames) -> None:
        """Raises `CodecError("bad_frames")` for codes outside the codebook."""
        low, high = int(codes.min(initial=0)), int(codes.max(initial=0))
        size = self.config.quantizer.codebook_size
        if low < 0 or high >= size:
            raise CodecError("bad_frames", f"codes {low}..{high} are not all in 0..{size - 1}")

    def width(self, path: Path) -> int:
        """Numbers a frame has."""
        if path == "codes":
            return self.config.quantizer.codebooks
        return 2 * self.config.hidden.stack.inputs if self.config.hidden else 0

    def context_width(self, path: Path) -> int:
        """Numbers the networks keep per stream between two windows."""
        decoder = self.codes if path == "codes" else self.hidden
        if decoder is None:
            raise CodecError("bad_frames", f"this codec cannot decode {path}")
        return kept_width(decoder) + kept_width(self.vocoder)

    def mel_rows(
        self, frames: Tensor, path: Path, rows: Layout, mels: Layout, context: Context
    ) -> Tensor:
        """Frames (rows, width) -> mel rows (2 * rows, bands) on the networks' scale."""
        if path == "codes" and self.codes is not None:
            return self.codes(self.quantizer.embed(frames.long()), rows, mels, context)  # type: ignore[no-any-return]
        assert self.hidden is not None
        return self.hidden(frames.float(), rows, mels, context)  # type: ignore[no-any-return]

    @torch.inference_mode()
    def decode(self, frames: Frames) -> Pcm:
        """Codes (n, codebooks) or hidden states (n, width) of one utterance -> PCM (samples,)."""
        from engine.codec.streaming import StreamingDecoder

        decoder = StreamingDecoder(self, recorded=False)
        return decoder.push([(decoder.open(), frames, True)])[0]

    @torch.inference_mode()
    def mel(self, frames: Frames) -> npt.NDArray[np.float32]:
        """Frames of one utterance -> its log-mel (2 * n, bands)."""
        path = self.path_of(frames)
        if path == "codes":
            self.check_range(frames)
        count = np.array([len(frames)])
        rows = Rows(count, count, self.device)
        context = Context(torch.zeros(1, self.context_width(path), device=self.device))
        x = torch.from_numpy(frames).to(self.device)
        shift, scale = self.config.affine
        mel = self.mel_rows(x, path, rows, rows.doubled(), context) * scale - shift
        return np.asarray(mel.cpu().numpy(), np.float32)

    @torch.inference_mode()
    def encode(self, pcm: Pcm) -> npt.NDArray[np.int16]:
        """24 kHz mono PCM (samples,) of one recording -> codes (n, codebooks), n about len / 512.

        Raises `CodecError`: `bad_audio`, or `bad_weights` when the encoder was not loaded.
        """
        if self.encoder is None or self.log_mel is None:
            raise CodecError("bad_weights", "this codec was loaded without its encoder")
        if pcm.ndim != 1 or len(pcm) < self.config.mel.n_fft:
            raise CodecError("bad_audio", f"expected mono PCM of at least 43 ms, got {pcm.shape}")
        if not np.isfinite(pcm).all():
            raise CodecError("bad_audio", "the recording has samples that are not finite")
        signal = torch.from_numpy(np.ascontiguousarray(pcm, np.float32)).to(self.device)
        if self.config.mel.whole_hops:
            frame = self.config.samples_per_frame
            signal = nn.functional.pad(signal, (0, -len(signal) % frame))
        shift, scale = self.config.affine
        mel = (self.log_mel(signal) + shift) / scale
        count = np.array([len(mel) // 2])
        context = Context(torch.zeros(1, kept_width(self.encoder), device=self.device))
        features = self.encoder(mel, Rows(count, count, self.device), context)
        return self.quantizer.encode(features).to(torch.int16).cpu().numpy()
