"""A tokenizer in the release's format with a vocabulary made by rule, for releases without weights.

The rule: BERT's special tokens, ASCII and full-width marks, the letters whole and continued (##),
the Han characters of GB 2312 in its order, two-letter pieces, and unused entries up to the size
asked for; then ChatTTS' fifty control tokens.
"""

from __future__ import annotations

import json
import string
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from engine.frontend.gb2312 import gb2312_characters

CONTROL_TOKENS = (
    *("[Sasr]", "[Pasr]", "[Easr]", "[Stts]", "[Ptts]", "[Etts]"),
    *("[Sbreak]", "[Pbreak]", "[Ebreak]"),
    *("[uv_break]", "[v_break]", "[lbreak]", "[llbreak]", "[undefine]", "[laugh]"),
    *("[spk_emb]", "[empty_spk]", "[music]", "[pure]"),
    *(f"[break_{n}]" for n in range(8)),
    *(f"[laugh_{n}]" for n in range(3)),
    *(f"[oral_{n}]" for n in range(10)),
    *(f"[speed_{n}]" for n in range(10)),
)
_BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_WIDE_MARKS = "，。、？！：；（）《》「」『』【】“”‘’…—～·"


def vocabulary(size: int) -> list[str]:
    """`size` entries by the rule above, control tokens not counted."""
    pairs = [a + b for a in string.ascii_lowercase for b in string.ascii_lowercase]
    entries = [
        *_BERT,
        *string.punctuation,
        *_WIDE_MARKS,
        *string.digits,
        *string.ascii_lowercase,
        *(f"##{c}" for c in string.ascii_lowercase + string.digits),
        *gb2312_characters(),
        *pairs,
        *(f"##{pair}" for pair in pairs),
    ]
    entries += [f"[unused{n}]" for n in range(size - len(entries))]
    return entries[:size]


def write_tokenizer(folder: Path, text_vocab: int) -> None:
    """Write the three tokenizer files of a release; `text_vocab` counts the control tokens."""
    entries = vocabulary(text_vocab - len(CONTROL_TOKENS))
    vocab = {token: index for index, token in enumerate(entries)}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    tokenizer.add_special_tokens([*_BERT, *CONTROL_TOKENS])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    roles = {
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
        "additional_special_tokens": list(CONTROL_TOKENS),
    }
    config = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": True,
        "strip_accents": None,
        "tokenize_chinese_chars": True,
        **roles,
    }
    _write_json(folder / "special_tokens_map.json", roles)
    _write_json(folder / "tokenizer_config.json", config)


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
