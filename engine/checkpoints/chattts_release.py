"""A ChatTTS release on disk, checked as a whole and opened."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch

from engine.checkpoints import chattts_layout as layout
from engine.checkpoints.chattts_layout import Header, Shape, Sizes
from engine.checkpoints.chattts_voices import ChatTTSVoice, read_statistics, read_voices
from engine.checkpoints.speaker_vectors import SpeakerStatistics
from engine.codec.config import CodecConfig, CodecError, released_config
from engine.codec.names import faults
from engine.frontend.chattts_tokens import ChatTTSTokens
from engine.lm_config import LmConfig, llama_config

if TYPE_CHECKING:
    from engine.codec.model import Codec

HOMOPHONES = "asset/homophones_map.json"
_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


@dataclass(slots=True)
class Release:
    """What a checked release holds. `homophones` is the reference's optional map, if put there."""

    directory: Path
    sizes: Sizes
    codec_config: CodecConfig
    tokens: ChatTTSTokens
    voices: list[ChatTTSVoice]
    statistics: SpeakerStatistics | None
    homophones: Mapping[str, str]
    _model_dir: TemporaryDirectory[str] | None = field(default=None, repr=False)

    @classmethod
    def open(cls, directory: Path) -> Release:
        """Raises `CheckpointError` naming everything that is missing or wrong."""
        check = _Check(directory)
        config = check.json(layout.GPT_CONFIG)
        sizes, codec_config = Sizes(), released_config()
        with check.noting(layout.GPT_CONFIG):
            sizes = layout.sizes_from(config)
            codec_config = released_config(
                gpt_hidden=sizes.hidden, **config.get(layout.CODEC_SIZES, {})
            )
        check.lm_tensors(layout.GPT, layout.gpt_tensors(sizes))
        check.lm_tensors(layout.EMBED, layout.embed_tensors(sizes))
        for file, part in layout.CODEC_FILES.items():
            header = check.header(file)
            if header is not None:
                found = faults(codec_config, part, _as_tensors(header))
                check.problems += [f"{file}: {fault}" for fault in found]
        check.exists(layout.TOKENIZER_CONFIG)
        check.exists(layout.SPECIAL_TOKENS)
        tokens = None
        if check.exists(layout.TOKENIZER):
            with check.noting(layout.TOKENIZER):
                tokens = ChatTTSTokens(directory / layout.TOKENIZER)
                if len(tokens) != sizes.text_vocab:
                    check.problems.append(
                        f"{layout.TOKENIZER} has {len(tokens)} tokens, the model {sizes.text_vocab}"
                    )
        voices, wrong = read_voices(directory, sizes)
        check.problems += wrong
        statistics = None
        with check.noting("speaker statistics"):
            statistics = read_statistics(directory, sizes)
        homophones = _homophones(check) if (directory / HOMOPHONES).is_file() else {}
        if check.problems or tokens is None:
            raise layout.error(directory, check.problems)
        return cls(directory, sizes, codec_config, tokens, voices, statistics, homophones)

    def model_dir(self, *, keep_hidden: bool) -> Path:
        """A directory vLLM loads; it links to the weights and lives as long as this release."""
        if self._model_dir is None:
            self._model_dir = TemporaryDirectory(prefix="voxgate-chattts-")
        folder, sizes = Path(self._model_dir.name), self.sizes
        lm = LmConfig(
            family="chattts",
            text_vocab=sizes.text_vocab,
            end_id=sizes.text_vocab,
            overrun_id=sizes.text_vocab + 1,
            codebooks=sizes.codebooks,
            code_vocab=sizes.code_vocab,
            end_code=sizes.end_code,
            sampled_codebooks=tuple(range(sizes.codebooks)),
            text_head=True,
            text_end_id=self.tokens["[Ebreak]"],
            keep_hidden=keep_hidden,
        )
        config = llama_config(
            lm,
            hidden_size=sizes.hidden,
            intermediate_size=sizes.intermediate,
            layers=sizes.layers,
            heads=sizes.heads,
            max_positions=sizes.positions,
            rms_norm_eps=sizes.rms_norm_eps,
            rope_theta=sizes.rope_theta,
            dtype="float32",
        )
        (folder / "config.json").write_text(json.dumps(config, indent=1))
        for name, file in (("gpt", layout.GPT), ("embed", layout.EMBED)):
            link = folder / f"{name}.safetensors"
            link.unlink(missing_ok=True)
            link.symlink_to((self.directory / file).resolve())
        return folder

    def codec(self) -> Codec:
        """Raises `CheckpointError` when the weights cannot be loaded."""
        from safetensors.torch import load_file

        from engine.codec.model import Codec

        dvae, decoder, vocos = (load_file(self.directory / file) for file in layout.CODEC_FILES)
        try:
            return Codec.released(dvae, decoder, vocos, self.codec_config)
        except CodecError as error:
            raise layout.error(self.directory, [str(error)]) from error


class _Check:
    """Collects problems, so that one run finds them all."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.problems: list[str] = []

    def exists(self, file: str) -> bool:
        if (self.directory / file).is_file():
            return True
        self.problems.append(f"{file} is missing")
        return False

    @contextlib.contextmanager
    def noting(self, what: str) -> Iterator[None]:
        """Failures to read `what` become problems."""
        try:
            yield
        except (ValueError, TypeError, OSError) as error:
            self.problems.append(f"{what}: {error}")

    def json(self, file: str) -> dict[str, Any]:
        if self.exists(file):
            with self.noting(file):
                content = json.loads((self.directory / file).read_text(encoding="utf-8"))
                if isinstance(content, dict):
                    return content
                self.problems.append(f"{file} must hold a JSON object")
        return {}

    def header(self, file: str) -> Header | None:
        if self.exists(file):
            try:
                return layout.read_header(self.directory / file)
            except (ValueError, OSError) as error:
                self.problems.append(f"{file} {error}")
        return None

    def lm_tensors(self, file: str, expected: Mapping[str, Shape]) -> None:
        header = self.header(file)
        if header is not None:
            wrong = layout.tensor_problems(header, expected)
            self.problems += [f"{file}: {problem}" for problem in wrong]


def _as_tensors(header: Header) -> dict[str, torch.Tensor]:
    """Tensors of a file without their values."""
    return {
        name: torch.empty(shape, dtype=_DTYPES.get(dtype, torch.int8), device="meta")
        for name, (dtype, shape) in header.items()
    }


def _homophones(check: _Check) -> dict[str, str]:
    found = check.json(HOMOPHONES)
    if all(isinstance(v, str) and len(k) == len(v) == 1 for k, v in found.items()):
        return found
    check.problems.append(f"{HOMOPHONES} must map characters to characters")
    return {}
