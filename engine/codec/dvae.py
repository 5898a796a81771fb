"""Between frames and log-mel: the decoders (DVAE's and ChatTTS' Decoder) and the encoder."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.codec.blocks import ConvNeXtStack, Dense, TapConv
from engine.codec.config import DecoderConfig, EncoderConfig
from engine.codec.rows import Context, Layout


class MelDecoder(nn.Module):
    """Feature rows at the frame rate -> mel rows at twice the frame rate.

    The result is on the networks' scale (see `CodecConfig.affine`).
    """

    coef: Tensor | None

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.stack = ConvNeXtStack(config.stack)
        self.smooth: TapConv | None = None
        if config.smooth:
            self.smooth = TapConv(
                config.stack.outputs, config.bands, 3, causal=config.stack.causal, bias=False
            )
        self.register_buffer("coef", torch.ones(config.bands) if config.smooth else None)

    def forward(self, x: Tensor, frames: Layout, mels: Layout, context: Context) -> Tensor:
        """x is (frames, width); returns (mels, bands)."""
        if self.config.double == "input":
            x = x.reshape(-1, self.config.stack.inputs)
            y: Tensor = self.stack(x, mels, context)
        else:
            y = self.stack(x, frames, context).view(-1, self.config.bands)
        if self.smooth is not None and self.coef is not None:
            y = self.smooth(y, mels, context) * self.coef
        return y


class Encoder(nn.Module):
    """Log-mel of a whole recording (mels, bands) -> features (mels // 2, dim). Never causal."""

    coef: Tensor | None

    def __init__(self, config: EncoderConfig, bands: int, *, divides: bool) -> None:
        super().__init__()
        self.near = Conv(bands, config.down, 3, stride=1)
        self.down = Conv(config.down, config.down, 4, stride=2)
        self.stack = ConvNeXtStack(config.stack)
        self.register_buffer("coef", torch.ones(bands) if divides else None)

    def forward(self, mel: Tensor, rows: Layout, context: Context) -> Tensor:
        """`rows` are those of the result; `mel` is on the networks' scale."""
        if self.coef is not None:
            mel = mel / self.coef
        x = F.gelu(self.down(F.gelu(self.near(mel))))
        features: Tensor = self.stack(x, rows, context)
        return features


class Conv(nn.Module):
    """Dense convolution of one whole signal (rows, inputs), padded by one row at each end.

    The weight is (outputs, kernel * inputs), taps outermost.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, *, stride: int) -> None:
        super().__init__()
        self.kernel = kernel
        self.stride = stride
        self.dense = Dense(kernel * inputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        padded = F.pad(x, (0, 0, 1, 1))
        taps = padded.unfold(0, self.kernel, self.stride).transpose(1, 2)
        y: Tensor = self.dense(taps.flatten(1))
        return y
