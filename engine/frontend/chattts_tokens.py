"""The tokenizer of a ChatTTS release: control tokens by name, text without them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from tokenizers import Tokenizer

INLINE_TAGS = ("[uv_break]", "[v_break]", "[lbreak]", "[llbreak]", "[laugh]")
"""What a text may contain: pauses (unvoiced, voiced, long, longer) and a laugh."""

REFINE_TAGS = tuple(
    f"[{name}_{n}]"
    for name, count in (("oral", 10), ("laugh", 3), ("break", 8))
    for n in range(count)
)
"""How the refine pass is asked to write: fillers, laughs and pauses, more with the number."""

STRUCTURE = (
    *("[Stts]", "[Ptts]", "[Sbreak]", "[Pbreak]", "[Ebreak]", "[empty_spk]", "[spk_emb]"),
    *(f"[speed_{n}]" for n in range(10)),
)
"""What prompts are built of."""

TAG = re.compile(r"\[[A-Za-z]+(?:_[A-Za-z]+)*(?:_\d+)?\]")
"""Anything written like a control token."""


class ChatTTSTokens:
    """`tokenizer.json` of a release. Raises `ValueError` when it is none or lacks a token."""

    def __init__(self, path: Path) -> None:
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the Rust side raises plain Exception
            raise ValueError(f"is no tokenizer ({error})") from error
        needed = (*STRUCTURE, *INLINE_TAGS, *REFINE_TAGS, "[UNK]")
        vocabulary: dict[str, int] = self._tokenizer.get_vocab()
        missing = [token for token in needed if token not in vocabulary]
        if missing:
            raise ValueError(f"lacks the tokens {' '.join(missing)}")
        self._ids = {token: vocabulary[token] for token in needed}
        self.knows = lru_cache(maxsize=1 << 14)(self._knows)
        """Whether every part of a text has a token of its own."""
        special = set(self._tokenizer.get_added_tokens_decoder())
        self._never_spoken = special - {self._ids[tag] for tag in INLINE_TAGS}

    def __len__(self) -> int:
        return int(self._tokenizer.get_vocab_size())

    def __getitem__(self, token: str) -> int:
        """Id of a control token."""
        return self._ids[token]

    def has(self, token: str) -> bool:
        """Whether the vocabulary holds exactly this."""
        return self._tokenizer.token_to_id(token) is not None

    def encode(self, text: str) -> list[int]:
        """Ids of text that holds no control token; what is not in the vocabulary is `[UNK]`."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def _knows(self, text: str) -> bool:
        return self._ids["[UNK]"] not in self.encode(text)

    def spoken(self, ids: Iterable[int]) -> list[int]:
        """Those of a refine pass' ids that are spoken: text, pauses and laughs."""
        return [index for index in ids if index not in self._never_spoken]
