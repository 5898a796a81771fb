"""Which characters are Chinese."""

HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f〇"
"""For use inside a character class of a regular expression."""
