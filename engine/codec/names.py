"""Which tensor of a checkpoint file is which parameter, and how it is laid out.

Released ChatTTS files are `DVAE`, `Decoder` and `Vocos` (.safetensors); the embedded voice has a
decoder file and an encoder file. `expected_tensors` is the list a loader checks a file against.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from engine.codec.config import CodecConfig, CodecError, QuantizerConfig, StackConfig, VocoderConfig

Part = Literal["dvae", "decoder", "vocos", "mini_decoder", "mini_encoder"]
Shape = tuple[int, ...]

FLOATS = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor of a file. `target` is the parameter's path in `Codec`; None: checked, not used.

    `kind` is the layout: `taps` (out, in, kernel) to rows of taps, `filter` (channels, 1, c.kernel)
    to (kernel, channels), `flat` reshapes. `needed`: it is an error when it is absent.
    """

    name: str
    shape: Shape
    target: str | None
    kind: Literal["same", "taps", "filter", "flat"] = "same"
    needed: bool = True

    def arrange(self, tensor: Tensor) -> Tensor:
        if self.kind == "taps":
            return tensor.permute(0, 2, 1).flatten(1)
        if self.kind == "filter":
            return tensor[:, 0].t()
        if self.kind == "flat":
            return tensor.flatten()
        return tensor

    def restore(self, tensor: Tensor) -> Tensor:
        """The inverse of `arrange`."""
        if self.kind == "taps":
            outputs, inputs, kernel = self.shape
            return tensor.view(outputs, kernel, inputs).permute(0, 2, 1)
        if self.kind == "filter":
            return tensor.t()[:, None]
        return tensor.view(self.shape)


def _pair(
    name: str, target: str, shape: Shape, kind: Literal["same", "taps"] = "same"
) -> list[Entry]:
    """Weight and bias of one layer."""
    return [
        Entry(f"{name}.weight", shape, f"{target}.weight", kind),
        Entry(f"{name}.bias", shape[:1], f"{target}.bias"),
    ]


def _norm(name: str, target: str, channels: int) -> list[Entry]:
    return _pair(name, target, (channels,))


@dataclass(frozen=True, slots=True)
class _BlockNames:
    """How a family names the parts of a ConvNeXt block."""

    depthwise: str
    norm: str
    widen: str
    narrow: str
    scale: str


_CHATTTS = _BlockNames("dwconv", "norm", "pwconv1", "pwconv2", "weight")
_VOCOS = _BlockNames("dwconv", "norm", "pwconv1", "pwconv2", "gamma")
_MINI = _BlockNames("dw.c", "norm", "p1", "p2", "gamma")


def _blocks(
    name: str, target: str, c: StackConfig | VocoderConfig, n: _BlockNames
) -> Iterator[Entry]:
    channels, intermediate = c.hidden, c.intermediate
    for layer in range(c.layers):
        a, b = f"{name}.{layer}", f"{target}.{layer}"
        weight = f"{b}.depthwise.weight"
        yield Entry(f"{a}.{n.depthwise}.weight", (channels, 1, c.kernel), weight, "filter")
        yield Entry(f"{a}.{n.depthwise}.bias", (channels,), f"{b}.depthwise.bias")
        yield from _norm(f"{a}.{n.norm}", f"{b}.norm", channels)
        yield from _pair(f"{a}.{n.widen}", f"{b}.widen", (intermediate, channels))
        yield from _pair(f"{a}.{n.narrow}", f"{b}.narrow", (channels, intermediate))
        yield Entry(f"{a}.{n.scale}", (channels,), f"{b}.scale")


def _chattts_stack(name: str, target: str, c: StackConfig) -> Iterator[Entry]:
    bottleneck, hidden = c.entry
    yield from _pair(f"{name}.conv_in.0", f"{target}.entry.0", (bottleneck, c.inputs, 3), "taps")
    yield from _pair(f"{name}.conv_in.2", f"{target}.entry.1", (hidden, bottleneck, 3), "taps")
    blocks = f"{name}.decoder_block"
    yield from _blocks(blocks, f"{target}.blocks", c, _CHATTTS)
    exit_name = f"{name}.conv_out.weight"
    yield Entry(exit_name, (c.outputs, hidden, 1), f"{target}.exit.weight", "taps")


def _quantizer(q: QuantizerConfig, enter: str | None, leave: str | None) -> Iterator[Entry]:
    """`enter` and `leave` are name patterns with {} for the group."""
    width, digits = q.dim // q.groups, len(q.levels)
    for group in range(q.groups):
        if enter is not None:
            target = f"quantizer.enter.{group}"
            yield from _pair(enter.format(group), target, (digits, width))
        if leave is not None:
            target = f"quantizer.leave.{group}"
            yield from _pair(leave.format(group), target, (width, digits))


def _mel_buffers(prefix: str, config: CodecConfig) -> Iterator[Entry]:
    """Window and filter bank that torchaudio stores beside the weights; both are recomputed."""
    mel = config.mel
    window, bank = f"{prefix}.spectrogram.window", f"{prefix}.mel_scale.fb"
    yield Entry(window, (mel.n_fft,), None, needed=False)
    yield Entry(bank, (mel.n_fft // 2 + 1, mel.bands), None, needed=False)


def _dvae(config: CodecConfig) -> Iterator[Entry]:
    codes, encoder, bands = config.codes, config.encoder, config.mel.bands
    if codes is None or encoder is None:
        raise CodecError("bad_config", "this configuration has no DVAE")
    down = encoder.down
    yield Entry("coef", (1, bands, 1), "codes.coef", "flat")
    yield Entry("coef", (1, bands, 1), "encoder.coef", "flat")
    near, further = "downsample_conv.0", "downsample_conv.2"
    yield from _pair(near, "encoder.near.dense", (down, bands, 3), "taps")
    yield from _pair(further, "encoder.down.dense", (down, down, 4), "taps")
    yield from _mel_buffers("preprocessor_mel.mel_spec", config)
    yield from _chattts_stack("encoder", "encoder.stack", encoder.stack)
    rvq = "vq_layer.quantizer.rvqs.{}"
    yield from _quantizer(config.quantizer, f"{rvq}.project_in", f"{rvq}.project_out")
    yield from _chattts_stack("decoder", "codes.stack", codes.stack)
    smooth = (bands, codes.stack.outputs, 3)
    yield Entry("out_conv.weight", smooth, "codes.smooth.weight", "taps")


def _decoder(config: CodecConfig) -> Iterator[Entry]:
    hidden, bands = config.hidden, config.mel.bands
    if hidden is None:
        raise CodecError("bad_config", "this configuration has no Decoder")
    yield Entry("coef", (1, bands, 1), "hidden.coef", "flat")
    yield from _chattts_stack("decoder", "hidden.stack", hidden.stack)
    smooth = (bands, hidden.stack.outputs, 3)
    yield Entry("out_conv.weight", smooth, "hidden.smooth.weight", "taps")


def _vocos(config: CodecConfig) -> Iterator[Entry]:
    v = config.vocoder
    yield from _mel_buffers("feature_extractor.mel_spec", config)
    yield from _pair("backbone.embed", "vocoder.embed", (v.dim, v.bands, v.kernel), "taps")
    yield from _norm("backbone.norm", "vocoder.norm", v.dim)
    blocks = "backbone.convnext"
    yield from _blocks(blocks, "vocoder.blocks", v, _VOCOS)
    yield from _norm("backbone.final_layer_norm", "vocoder.final_norm", v.dim)
    yield from _pair("head.out", "vocoder.head", (v.n_fft + 2, v.dim))
    yield Entry("head.istft.window", (v.n_fft,), None, needed=False)


def _mini_decoder(config: CodecConfig) -> Iterator[Entry]:
    codes, v = config.codes, config.vocoder
    if codes is None:
        raise CodecError("bad_config", "this configuration has no decoder")
    s = codes.stack
    yield from _quantizer(config.quantizer, None, "q.pout.{}")
    yield from _pair("dec.cin.c", "codes.stack.entry.0", (s.hidden, s.inputs, 3), "taps")
    target = "codes.stack.blocks"
    yield from _blocks("dec.b", target, s, _MINI)
    yield from _norm("dec.norm", "codes.stack.norm", s.hidden)
    yield from _pair("dec.cout", "codes.stack.exit", (s.outputs, s.hidden))
    yield from _pair("voc.emb.c", "vocoder.embed", (v.dim, v.bands, v.kernel), "taps")
    yield from _norm("voc.n0", "vocoder.norm", v.dim)
    target = "vocoder.blocks"
    yield from _blocks("voc.b", target, v, _MINI)
    yield from _norm("voc.n1", "vocoder.final_norm", v.dim)
    yield from _pair("voc.head", "vocoder.head", (v.n_fft + 2, v.dim))


def _mini_encoder(config: CodecConfig) -> Iterator[Entry]:
    encoder, bands = config.encoder, config.mel.bands
    if encoder is None:
        raise CodecError("bad_config", "this configuration has no encoder")
    s, down = encoder.stack, encoder.down
    yield from _pair("enc.c0", "encoder.near.dense", (down, bands, 3), "taps")
    yield from _pair("enc.c1", "encoder.down.dense", (down, down, 4), "taps")
    target = "encoder.stack.blocks"
    yield from _blocks("enc.b", target, s, _MINI)
    yield from _pair("enc.out", "encoder.stack.exit", (s.outputs, s.hidden))
    yield from _quantizer(config.quantizer, "q.pin.{}", "q.pout.{}")


_PARTS = {
    "dvae": _dvae,
    "decoder": _decoder,
    "vocos": _vocos,
    "mini_decoder": _mini_decoder,
    "mini_encoder": _mini_encoder,
}


def expected_tensors(config: CodecConfig, part: Part) -> dict[str, Shape]:
    """Name -> shape of every tensor a file must hold (released: DVAE, Decoder, Vocos)."""
    return {entry.name: entry.shape for entry in _PARTS[part](config) if entry.needed}


def known_tensors(config: CodecConfig, part: Part) -> dict[str, Shape]:
    """`expected_tensors` and those a file may hold besides."""
    return {entry.name: entry.shape for entry in _PARTS[part](config)}


def faults(config: CodecConfig, part: Part, state: Mapping[str, Tensor]) -> list[str]:
    """What is missing, unexpected or wrong in a file, one sentence each; empty when nothing is."""
    found = []
    for name, shape in known_tensors(config, part).items():
        if name not in state:
            continue
        tensor = state[name]
        if tuple(tensor.shape) != shape:
            found.append(f"{name} has shape {tuple(tensor.shape)}, expected {shape}")
        if tensor.dtype not in FLOATS:
            found.append(f"{name} has type {tensor.dtype}, expected a float")
    missing = [name for name in expected_tensors(config, part) if name not in state]
    unexpected = state.keys() - known_tensors(config, part).keys()
    found += [f"{name} is missing" for name in missing]
    found += [f"{name} is not part of this codec" for name in sorted(unexpected)]
    return found


def fill(
    module: nn.Module, config: CodecConfig, parts: Sequence[tuple[Part, Mapping[str, Tensor]]]
) -> None:
    """Copy checkpoint tensors into the module's parameters, as float32.

    Raises `CodecError("bad_weights")` that names everything missing or wrong.
    """
    problems = [f"{part}: {p}" for part, state in parts for p in faults(config, part, state)]
    if problems:
        raise CodecError("bad_weights", "; ".join(problems))
    slots = dict(module.named_parameters()) | dict(module.named_buffers())
    for part, state in parts:
        for entry in _PARTS[part](config):
            if entry.target is not None and entry.target in slots:
                slots[entry.target].data.copy_(entry.arrange(state[entry.name].float()))


def gather(module: nn.Module, config: CodecConfig, part: Part) -> dict[str, Tensor]:
    """The inverse of `fill`: the tensors of a checkpoint file from the module's parameters.

    A scale that was folded into the layer before it is written as ones.
    """
    slots = dict(module.named_parameters()) | dict(module.named_buffers())
    tensors = {}
    for entry in _PARTS[part](config):
        if entry.target is None:
            continue
        value = slots.get(entry.target)
        if value is None:
            value = torch.ones(entry.shape)
        tensors[entry.name] = entry.restore(value.detach())
    return tensors
