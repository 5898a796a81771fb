"""Layers of the codec networks over packed rows (see `rows`)."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.codec.config import StackConfig
from engine.codec.rows import Context, Layout, Neighbours


class Dense(nn.Module):
    """Linear layer (rows, inputs) -> (rows, outputs) computed in the type of its weight."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.bias = nn.Parameter(torch.empty(outputs)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x.to(self.weight.dtype), self.weight, self.bias)


class Norm(nn.Module):
    """LayerNorm over channels, eps 1e-6."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels))
        self.bias = nn.Parameter(torch.empty(channels))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-6)


class _ContextConv(nn.Module):
    """A convolution over time that keeps `left` rows of each stream between windows."""

    def __init__(self, channels: int, kernel: int, dilation: int, causal: bool) -> None:
        super().__init__()
        self.channels = channels
        self.kernel = kernel
        self.dilation = dilation
        span = (kernel - 1) * dilation
        self.left = span if causal else span // 2
        self.right = span - self.left

    @property
    def kept_width(self) -> int:
        """Numbers kept per stream."""
        return self.left * self.channels

    def _spread(self, x: Tensor, near: Neighbours, context: Context) -> Tensor:
        """The rows between their context; gives its successor."""
        spread = near.spread(x, context.take(self.left, self.channels))
        context.keep(near.keep(spread))
        return spread


class TapConv(_ContextConv):
    """Dense convolution (rows, inputs) -> (rows, outputs): gathered taps times one matrix.

    The weight is (outputs, kernel * inputs), taps outermost.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        *,
        causal: bool,
        bias: bool = True,
    ) -> None:
        super().__init__(inputs, kernel, 1, causal)
        self.weight = nn.Parameter(torch.empty(outputs, kernel * inputs))
        self.bias = nn.Parameter(torch.empty(outputs)) if bias else None

    def forward(self, x: Tensor, rows: Layout, context: Context) -> Tensor:
        near = rows.neighbours(self.left, self.right)
        taps = self._spread(x, near, context).unfold(1, self.kernel, 1).transpose(2, 3)
        taps = near.centred(taps).flatten(1)
        return F.linear(taps.to(self.weight.dtype), self.weight, self.bias).to(x.dtype)


class DepthwiseConv(_ContextConv):
    """One filter a channel, (rows, channels) -> the same. The weight is (kernel, channels)."""

    def __init__(self, channels: int, kernel: int, dilation: int, *, causal: bool) -> None:
        super().__init__(channels, kernel, dilation, causal)
        self.weight = nn.Parameter(torch.empty(kernel, channels))
        self.bias = nn.Parameter(torch.empty(channels))

    def forward(self, x: Tensor, rows: Layout, context: Context) -> Tensor:
        near = rows.neighbours(self.left, self.right)
        spread = self._spread(x, near, context)
        # One fused multiply-add a tap: several times cheaper than a convolution call on a few rows,
        # no dearer on many, and it sums in the same order whatever the batch.
        length = spread.shape[1] - self.left - self.right
        total = torch.addcmul(self.bias, spread[:, :length], self.weight[0])
        for tap in range(1, self.kernel):
            start = tap * self.dilation
            total = torch.addcmul(total, spread[:, start : start + length], self.weight[tap])
        return near.centred(total)


class ConvNeXtBlock(nn.Module):
    """Depthwise convolution, LayerNorm, widen, GELU, narrow, scale, add (arXiv 2201.03545)."""

    def __init__(
        self, channels: int, intermediate: int, kernel: int, dilation: int, *, causal: bool
    ) -> None:
        super().__init__()
        self.depthwise = DepthwiseConv(channels, kernel, dilation, causal=causal)
        self.norm = Norm(channels)
        self.widen = Dense(channels, intermediate)
        self.narrow = Dense(intermediate, channels)
        self.scale: nn.Parameter | None = nn.Parameter(torch.empty(channels))

    def fold(self) -> None:
        """Move the scale into the layer before it."""
        if self.scale is None or self.narrow.bias is None:
            return
        self.narrow.weight.data.mul_(self.scale.data[:, None])
        self.narrow.bias.data.mul_(self.scale.data)
        self.scale = None

    def forward(self, x: Tensor, rows: Layout, context: Context) -> Tensor:
        y: Tensor = self.norm(self.depthwise(x, rows, context))
        y = self.narrow(F.gelu(self.widen(y)))
        if self.scale is not None:
            y = y * self.scale
        return x + y


class ConvNeXtStack(nn.Module):
    """Entry convolutions, ConvNeXt blocks, exit projection: (rows, inputs) -> (rows, outputs)."""

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        widths = (config.inputs, *config.entry)
        self.entry = nn.ModuleList(
            TapConv(inputs, outputs, 3, causal=config.causal)
            for inputs, outputs in pairwise(widths)
        )
        self.blocks = nn.ModuleList(
            ConvNeXtBlock(
                config.hidden,
                config.intermediate,
                config.kernel,
                config.dilation,
                causal=config.causal,
            )
            for _ in range(config.layers)
        )
        self.norm = Norm(config.hidden) if config.exit_norm else None
        self.exit = Dense(config.hidden, config.outputs, bias=config.exit_bias)

    def forward(self, x: Tensor, rows: Layout, context: Context) -> Tensor:
        for position, conv in enumerate(self.entry):
            x = conv(F.gelu(x) if position else x, rows, context)
        for block in self.blocks:
            x = block(x, rows, context)
        if self.norm is not None:
            x = self.norm(x)
        y: Tensor = self.exit(x)
        return y.float()


def kept_width(module: nn.Module) -> int:
    """Numbers that the convolutions of `module` keep per stream."""
    return sum(m.kept_width for m in module.modules() if isinstance(m, _ContextConv))


def contexts(module: nn.Module) -> set[tuple[int, int]]:
    """(left, right) of the convolutions of `module`."""
    return {(m.left, m.right) for m in module.modules() if isinstance(m, _ContextConv)}
