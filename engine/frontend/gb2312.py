"""The Han characters of GB 2312."""

from __future__ import annotations


def gb2312_characters() -> list[str]:
    """Its 6,763 characters in its order: the 3,755 commonest by their reading, then the rest."""
    found = []
    for row in range(16, 88):
        for cell in range(1, 95):
            try:
                found.append(bytes((row + 0xA0, cell + 0xA0)).decode("gb2312"))
            except UnicodeDecodeError:
                continue
    return found
