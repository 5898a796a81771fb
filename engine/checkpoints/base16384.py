"""base16384: bytes as text of CJK characters, 14 bits a character.

Each 14 bits, most significant first, become the character U+4E00 + value; the last one is filled
with zero bits. When the length is no multiple of seven bytes, a final character U+3D00 + (length
mod 7) says how many bytes of the last group count. Format: github.com/fumiama/base16384.
"""

from __future__ import annotations

_FIRST = 0x4E00
_TAIL = 0x3D00
_BITS = 14
_GROUP_BYTES, _GROUP_CHARS = 7, 4


def encode(data: bytes) -> str:
    """Text of `data`; the empty string for no bytes."""
    chars = -(-len(data) * 8 // _BITS)
    value = int.from_bytes(data, "big") << (chars * _BITS - len(data) * 8)
    text = [
        chr(_FIRST + (value >> (_BITS * (chars - 1 - i)) & (1 << _BITS) - 1)) for i in range(chars)
    ]
    if len(data) % _GROUP_BYTES:
        text.append(chr(_TAIL + len(data) % _GROUP_BYTES))
    return "".join(text)


def decode(text: str) -> bytes:
    """The bytes of `text`. Raises `ValueError` naming the first character that does not belong."""
    rest = 0
    if text and _TAIL < ord(text[-1]) < _TAIL + _GROUP_BYTES:
        rest = ord(text[-1]) - _TAIL
        text = text[:-1]
    value = 0
    for at, char in enumerate(text):
        digit = ord(char) - _FIRST
        if not 0 <= digit < 1 << _BITS:
            raise ValueError(f"character {at} ({char!r}, U+{ord(char):04X}) is not base16384")
        value = value << _BITS | digit
    tail_chars = -(-rest * 8 // _BITS)
    groups, odd = divmod(len(text) - tail_chars, _GROUP_CHARS)
    if groups < 0 or odd:
        raise ValueError(f"{len(text)} characters are no whole base16384 text: it was cut")
    size = groups * _GROUP_BYTES + rest
    return (value >> (len(text) * _BITS - size * 8)).to_bytes(size, "big")
