"""Speakers of ChatTTS as users pass them around: vectors, reference codes and their text forms.

A speaker is a vector of `hidden` numbers (768 in the release) that stands, L2-normalised, in the
place of the embedding of `[spk_emb]`. Both the vector (float16) and the codes of a reference
recording (uint16, codebooks x frames) travel as raw LZMA2 written in base16384.
"""

from __future__ import annotations

import lzma
import struct
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError

import numpy as np
import numpy.typing as npt

from engine.checkpoints import base16384
from engine.checkpoints.base import Codes

Vector = npt.NDArray[np.float16]

# What the reference package writes with. A decoder may use a smaller dictionary than the writer's
# 64 MiB as long as it covers the data, and these texts hold a few KiB.
_WRITE: list[dict[str, int]] = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}]
_READ: list[dict[str, int]] = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 16}]
_MAX_REFERENCE_FRAMES = 4096


def encode_vector(vector: npt.ArrayLike) -> str:
    """Text of a speaker vector (hidden,)."""
    raw = np.asarray(vector, dtype="<f2").tobytes()
    return base16384.encode(lzma.compress(raw, format=lzma.FORMAT_RAW, filters=_WRITE))


def decode_vector(text: str, hidden: int) -> Vector:
    """The float16 vector (hidden,) of `text`. Raises `ValueError` when it is none."""
    raw = _unpack(base16384.decode("".join(text.split())), hidden * 2)
    if len(raw) != hidden * 2:
        count = f"{len(raw) // 2}" if len(raw) < hidden * 2 else f"more than {hidden}"
        raise ValueError(f"it holds {count} numbers, this model's speakers have {hidden}")
    return checked(np.frombuffer(raw, dtype="<f2"), hidden)


def encode_codes(codes: Codes) -> str:
    """Text of reference codes (frames, codebooks)."""
    columns = np.ascontiguousarray(codes.T, dtype="<u2")
    packed = lzma.compress(columns.tobytes(), format=lzma.FORMAT_RAW, filters=_WRITE)
    return base16384.encode(struct.pack("<HH", *columns.shape) + packed)


def decode_codes(text: str, codebooks: int, code_values: int) -> Codes:
    """Reference codes (frames, codebooks) of `text`. Raises `ValueError` when it holds none."""
    data = base16384.decode("".join(text.split()))
    if len(data) < 4:
        raise ValueError("it is too short to hold reference codes")
    rows, frames = struct.unpack("<HH", data[:4])
    if rows != codebooks or not 0 < frames <= _MAX_REFERENCE_FRAMES:
        raise ValueError(
            f"it holds {rows} codebooks of {frames} frames; "
            f"expected {codebooks} of 1 to {_MAX_REFERENCE_FRAMES}"
        )
    raw = _unpack(data[4:], rows * frames * 2)
    if len(raw) != rows * frames * 2:
        raise ValueError(f"{len(raw)} bytes of codes where {rows * frames * 2} belong")
    codes = np.frombuffer(raw, dtype="<u2").reshape(rows, frames).T
    if codes.max() >= code_values:
        raise ValueError(f"code {codes.max()} lies outside 0..{code_values - 1}")
    return np.ascontiguousarray(codes, dtype=np.int16)


def _unpack(packed: bytes, limit: int) -> bytes:
    # Bounded, because the text may come from a client.
    unpacker = lzma.LZMADecompressor(format=lzma.FORMAT_RAW, filters=_READ)
    try:
        return unpacker.decompress(packed, max_length=limit + 1)
    except (lzma.LZMAError, EOFError) as error:
        raise ValueError(f"its compressed data is damaged ({error})") from error


def checked(values: npt.ArrayLike, hidden: int) -> Vector:
    """`values` as a usable speaker vector (hidden,). Raises `ValueError`."""
    vector = np.asarray(values).reshape(-1)
    if vector.shape != (hidden,):
        raise ValueError(f"it holds {vector.size} numbers, this model's speakers have {hidden}")
    half: Vector = vector.astype(np.float16)
    if not np.isfinite(half).all() or not half.any():
        raise ValueError("it must be finite and not all zero")
    return half


def unit(vector: Vector) -> npt.NDArray[np.float32]:
    """The embedding (hidden,) of a speaker: its L2-normalised vector.

    Norm and quotient are rounded to float16, as the model has always been fed: full precision
    would move the logits by more than the two implementations differ.
    """
    norm = np.float16(np.linalg.norm(vector.astype(np.float32)))
    return (vector / norm).astype(np.float32)


def read_speaker_file(path: Path, hidden: int) -> Vector:
    """A speaker vector kept as base16384 text, `.npy` or `.pt`. Raises `ValueError`, `OSError`."""
    if path.suffix in (".npy", ".pt"):
        return checked(_read_numbers(path), hidden)
    return decode_vector(path.read_text(encoding="utf-8"), hidden)


def _read_numbers(path: Path) -> npt.NDArray[np.float32]:
    if path.suffix == ".npy":
        return np.load(path, allow_pickle=False).astype(np.float32)  # type: ignore[no-any-return]
    import torch

    try:
        # A reader that knows nothing but tensors: the file can name no code.
        tensor = torch.load(path, map_location="cpu", weights_only=True)
        return np.asarray(tensor.detach().float().numpy())
    except (RuntimeError, AttributeError, ValueError, EOFError, UnpicklingError) as error:
        raise ValueError(f"{path} holds no tensor ({error})") from error


@dataclass(frozen=True, slots=True)
class SpeakerStatistics:
    """Mean and spread, each (hidden,) float16, of the speakers a release was trained with.

    They belong to the release (`asset/spk_stat.pt`, or the text `spk_stat` of the reference
    package's configuration) and come with its licence, so nothing of them is kept here.
    """

    std: Vector
    mean: Vector

    @classmethod
    def read(cls, path: Path, hidden: int) -> SpeakerStatistics:
        """Read `.pt`, `.npy` or base16384 text of 2 x hidden numbers: spreads, then means.

        Raises `ValueError` naming what is wrong, `OSError` when the file cannot be read.
        """
        if path.suffix in (".npy", ".pt"):
            values = _read_numbers(path).reshape(-1)
        else:
            data = base16384.decode("".join(path.read_text(encoding="utf-8").split()))
            values = np.frombuffer(data[: len(data) // 2 * 2], dtype="<f2")
        if values.size != 2 * hidden or not np.isfinite(values).all():
            raise ValueError(
                f"{path} holds {values.size} numbers; speaker statistics are {2 * hidden} of them"
            )
        half = values.astype(np.float16)
        return cls(std=half[:hidden], mean=half[hidden:])

    def sample(self, seed: int) -> Vector:
        """The random speaker of `seed`: the same vector on every machine."""
        noise = np.random.default_rng(seed).standard_normal(self.std.size).astype(np.float32)
        drawn = noise * self.std.astype(np.float32) + self.mean.astype(np.float32)
        return drawn.astype(np.float16)
