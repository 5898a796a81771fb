"""E-mail addresses, URLs, file names and handles, found in text and read out part by part.

The scheme, `www.`, a trailing slash, the query and the fragment of a URL are not read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_TLD = (
    "com|org|net|edu|gov|mil|int|info|biz|name|dev|app|io|ai|co|me|tv|cc|xyz|site|online|shop|uk|us|de"
    "|fr|cn|jp|kr|hk|tw|sg|in|au|ca|eu|ru|br|it|es|nl|ch|se|no|fi|dk|pl|at|be|nz|ie"
)
_EXTENSION = (
    "pdf|docx?|xlsx?|pptx?|txt|csv|tsv|json|ya?ml|toml|xml|html?|css|md|py|js|ts|jsx|tsx|java|cpp|rs"
    "|go|rb|sh|ipynb|zip|tar|gz|rar|png|jpe?g|gif|svg|webp|mp3|mp4|wav|ogg|flac|mov|avi|exe|apk|iso"
    "|log|ini"
)
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_PATH = r"(?:/[A-Za-z0-9\-._~/?\#=&%+]*[A-Za-z0-9/=_\-\#])?"
_NAME = r"[A-Za-z0-9_](?:[A-Za-z0-9._%+-]*[A-Za-z0-9_])?"
_AFTER = r"(?![A-Za-z0-9_@-]|\.[A-Za-z0-9])"
_ADDRESS = re.compile(
    rf"""(?<![A-Za-z0-9_.@/])(?:
      (?P<mail>(?:mailto:)?{_NAME}@(?:{_LABEL}\.)+[A-Za-z]{{2,}})
    | (?P<url>(?:(?:https?|ftp)://|www\.)[A-Za-z0-9\-._~:/?\#@!$&'()*+,;=%\[\]]*[A-Za-z0-9/=_\-\#])
    | (?P<domain>(?:{_LABEL}\.)+(?i:{_TLD}){_AFTER}{_PATH})
    | (?P<file>[A-Za-z0-9_][A-Za-z0-9_\-]*(?:\.[A-Za-z0-9_\-]+)*\.(?i:{_EXTENSION}){_AFTER})
    | (?P<handle>@[A-Za-z_][A-Za-z0-9_]+)
    )""",
    re.VERBOSE,
)  # fmt: skip
_SCHEME = re.compile(r"^(?:mailto:|(?:https?|ftp)://)?(?:www\.)?", re.I)
_PARTS = re.compile(r"[A-Za-z]+|\d+|.")
_CAPITALS = re.compile(r"(?<=[a-z])(?=[A-Z])")
_WORD_LIKE = re.compile(r"[aeiouy]", re.I)
_SAID_AS_WORDS = re.compile("com|org|net|gov|info|biz|name|dev|app|site|online|shop|zip|log|html")
_SAID_AS_LETTERS = re.compile(
    "edu|io|ai|cc|tv|me|uk|us|api|www|https?|ftp|ssh|sql|xml|xyz|ya?ml|exe|apk|iso|aws|ios|usa|csv|md"
    "|py|js|ts|id|ui|ux"
)


@dataclass(frozen=True, slots=True)
class Style:
    """How one language reads the marks and the digits of an address."""

    marks: Mapping[str, str]
    digits: Callable[[str], str]
    gap: str
    """Between a mark's name and its neighbours."""


def read_addresses(text: str, style: Style) -> str:
    """The text with every address in words; Latin letters stay Latin, spelled as `I.O`."""
    return _ADDRESS.sub(lambda found: _read(found, style), text)


def without_addresses(text: str) -> str:
    return _ADDRESS.sub(" ", text)


def spelled(letters: str) -> str:
    """Letters to be named one by one, as the English lexicon recognises them: `ai` -> A.I."""
    return ".".join(letters.upper())


def _read(found: re.Match[str], style: Style) -> str:
    address = found[0]
    kind = found.lastgroup
    if kind in ("url", "domain"):
        address = re.split(r"[?#]", address, maxsplit=1)[0].rstrip("/")
    address = _SCHEME.sub("", address) or address
    words = []
    for part in _PARTS.findall(_CAPITALS.sub("\0", address)):
        if part == "\0":
            continue
        if part.isdigit():
            words.append(style.digits(part))
        elif part.isalpha():
            words.append(_label(part))
        elif part in style.marks:
            words.append(style.marks[part])
    return style.gap + style.gap.join(words) + style.gap


def _label(letters: str) -> str:
    low = letters.lower()
    if _SAID_AS_WORDS.fullmatch(low):
        return low
    if _SAID_AS_LETTERS.fullmatch(low) or not _WORD_LIKE.search(low) or len(low) == 2:
        return spelled(low)
    return letters
